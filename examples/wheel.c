/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wheel - shows a wheel turning: a manual timer under a load that is made up.
 *
 *   wheel [--load NAME] [--rate PERCENT] [--seed N] [--speed TICKS | max]
 *         [--skip TICKS] [--frames N] [--svg FILE]
 *
 *   --load    idle, connections, rpc, mixed (mixed)
 *   --rate    how much of that load (100)
 *   --seed    of its random numbers (1): the same seed shows the same
 *   --speed   ticks per second (16); max: without a pause
 *   --skip    ticks before the first frame (0; without a terminal 400)
 *   --frames  ends after so many (without a terminal: 1)
 *   --svg     writes one frame as a picture, and ends
 *
 * Keys: + and - change the speed, space stops and goes on, q ends.
 *
 * Nothing that it shows is taken on trust. In each frame, the program's own
 * counts must be those of hwt_read_stats and hwt_pending_timeouts, and each
 * task must start at the tick of which the picture said so; or else the exit
 * status is 1. wheel_load.c says what the picture knows.
 */
#define _GNU_SOURCE
#include "wheel.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "common.h"

#define ROWS 24
#define COLUMNS 80
#define FRAMES_PER_SECOND 32
#define SPEED_MAX 4096
#define NUMBER_MAX 1000000000

static struct {
	const char *load, *svg;
	uint64_t rate, seed, speed, skip, frames;
	bool has_skip;
} options = {.load = "mixed", .rate = 100, .seed = 1, .speed = 16};

static struct termios saved;
static bool is_paused;
static volatile sig_atomic_t is_over;

static const char usage[] =
    "wheel [--load idle|connections|rpc|mixed] [--rate PERCENT] [--seed N]\n"
    "             [--speed TICKS|max] [--skip TICKS] [--frames N]"
    " [--svg FILE]";

static void
read_options(int argc, char **argv)
{
	static const struct option names[] = {
	    {"load", required_argument, NULL, 'l'},
	    {"rate", required_argument, NULL, 'r'},
	    {"seed", required_argument, NULL, 's'},
	    {"speed", required_argument, NULL, 'v'},
	    {"skip", required_argument, NULL, 'k'},
	    {"frames", required_argument, NULL, 'f'},
	    {"svg", required_argument, NULL, 'o'},
	    {NULL, 0, NULL, 0},
	};
	int option;

	usage_if_asked(usage, argc, argv);
	while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (option == '?')
			usage_tell(usage, 2);
		else if (option == 'l')
			options.load = optarg;
		else if (option == 'o')
			options.svg = optarg;
		else if (option == 'v' && strcmp(optarg, "max") == 0)
			options.speed = 0;
		else if (option == 'v')
			options.speed = argument_number(optarg, SPEED_MAX);
		else if (option == 'r')
			options.rate = argument_number(optarg, 10000);
		else if (option == 's')
			options.seed = argument_number(optarg, NUMBER_MAX);
		else if (option == 'f')
			options.frames = argument_number(optarg, NUMBER_MAX);
		else {
			options.skip = argument_number(optarg, NUMBER_MAX);
			options.has_skip = true;
		}
	}
	if (optind != argc)
		usage_tell(usage, 2);
}

static void
on_signal(int signal)
{
	is_over = signal;
}

/* Puts the terminal back as it was. */
static void
terminal_leave(void)
{
	fputs("\033[?7h\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSANOW, &saved);
}

/* A screen of its own, without a cursor, that cuts what is too long for a line;
 * keys come one by one and are not shown. Nothing may stop the program and
 * leave the terminal so. */
static void
terminal_enter(void)
{
	static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	const struct sigaction action = {.sa_handler = on_signal};
	struct termios raw;
	size_t i;

	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaction(ends[i], &action, NULL);
	tcgetattr(STDIN_FILENO, &saved);
	raw = saved;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VSUSP] = _POSIX_VDISABLE;
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	fputs("\033[?1049h\033[?25l\033[?7l", stdout);
}

/* In one write, so that no half of a frame is seen. */
static void
terminal_show(const struct picture *picture)
{
	struct winsize size = {0};
	char *text = NULL, speed[24] = "max";
	size_t length;
	FILE *file = open_memstream(&text, &length);

	if (file == NULL)
		return;
	ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
	fputs("\033[H", file);
	/* Some terminals do not know their size. */
	draw_text(file, picture, size.ws_row > 0 ? size.ws_row : ROWS,
	    size.ws_col > 0 ? size.ws_col : COLUMNS, true);
	if (options.speed > 0)
		snprintf(speed, sizeof(speed), "%" PRIu64, options.speed);
	fprintf(file,
	    "%s ticks/s%s   + faster   - slower   space %s   q ends\033[J",
	    speed, is_paused ? ", stopped" : "",
	    is_paused ? "goes on" : "stops");
	if (fclose(file) == 0) {
		fwrite(text, 1, length, stdout);
		fflush(stdout);
	}
	free(text);
}

static void
read_keys(void)
{
	char key;

	while (read(STDIN_FILENO, &key, 1) == 1) {
		if (key == 'q')
			is_over = 1;
		else if (key == ' ')
			is_paused = !is_paused;
		else if ((key == '+' || key == '=') && options.speed != 0 &&
		    options.speed < SPEED_MAX)
			options.speed *= 2;
		else if (key == '-' && options.speed > 1)
			options.speed /= 2;
	}
}

/* Waits until the next frame; keys are heard meanwhile. */
static void
wait_until(uint64_t until_ns)
{
	struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t now_ns = clock_now_ns();

	do {
		int wait_ms = until_ns > now_ns
		    ? (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS)
		    : 0;

		if (poll(&keys, 1, wait_ms) > 0) {
			read_keys();
			if ((keys.revents & (POLLHUP | POLLERR)) != 0)
				is_over = 1;
		}
		now_ns = clock_now_ns();
	} while (is_over == 0 && now_ns < until_ns);
}

static void
show_terminal(struct picture *picture)
{
	/* owed: ticks times frames per second, which no frame has shown. */
	uint64_t next_ns = clock_now_ns(), frame = 0, owed = 0;

	terminal_enter();
	while (is_over == 0) {
		uint64_t per_second = options.speed;

		terminal_show(picture);
		if (++frame == options.frames)
			break;
		if (per_second > FRAMES_PER_SECOND || is_paused)
			per_second = FRAMES_PER_SECOND;
		next_ns += per_second > 0 ? NS_PER_SEC / per_second : 0;
		wait_until(next_ns);
		if (is_paused)
			continue;
		owed = per_second > 0 ? owed + options.speed : 1;
		per_second += per_second == 0;
		load_turn(owed / per_second, picture);
		owed %= per_second;
	}
	terminal_leave();
}

static void
show_text(struct picture *picture)
{
	uint64_t frame;

	for (frame = 1;; frame++) {
		draw_text(stdout, picture, ROWS, COLUMNS, false);
		if (frame >= options.frames)
			return;
		putchar('\n');
		load_turn(1, picture);
	}
}

static bool
show_svg(const struct picture *picture)
{
	FILE *file = fopen(options.svg, "w");

	if (file != NULL) {
		draw_svg(file, picture);
		if (fclose(file) == 0)
			return true;
	}
	fprintf(stderr, "wheel: %s: %s\n", options.svg, strerror(errno));
	return false;
}

int
main(int argc, char **argv)
{
	struct picture picture;
	bool is_terminal, is_written = true;

	read_options(argc, argv);
	is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
	    options.svg == NULL;
	if (!options.has_skip && !is_terminal)
		options.skip = 400;
	if (!load_open(options.load, options.rate, options.seed))
		usage_tell(usage, 2);
	load_turn(options.skip, &picture);
	if (options.svg != NULL)
		is_written = show_svg(&picture);
	else if (is_terminal)
		show_terminal(&picture);
	else
		show_text(&picture);
	load_close();
	if (!picture.is_equal)
		fputs("wheel: the library counts otherwise\n", stderr);
	return picture.is_equal && is_written ? 0 : 1;
}
