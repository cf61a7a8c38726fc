/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "modules/durable/programs/program.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

#include "modules/durable/client/client.h"

#define OPTIONS_MAX 32
#define PAGE "500" /* names of an answer */
#define CURSOR_SIZE 24

void
program_fail(int status, const char *format, ...)
{
	va_list arguments;

	(void)fprintf(stderr, "%s: ", program.name);
	va_start(arguments, format);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	(void)fputc('\n', stderr);
	exit(status);
}

void
program_usage(void)
{
	(void)fputs(program.usage, stderr);
	exit(STATUS_USAGE);
}

/*
 * Options.
 */

const struct program_option client_options[] = {
    {"server", .text = &program.connect.servers},
    {"space", .text = &program.connect.space},
    {"user", .text = &program.connect.user},
    {"password-file", .text = &program.connect.password_file},
    {"timeout", .time = &program.connect.timeout_ns},
    {.name = NULL},
};

const struct program_option worker_options[] = {
    {"queue", .text = &program.work.queue},
    {"visibility", .time = &program.work.visibility_ns},
    {"grace", .time = &program.grace_ns},
    {.name = NULL},
};

/* Digits; *end is what follows. */
static uint64_t
read_number(const char *text, char **end)
{
	errno = *text >= '0' && *text <= '9' ? 0 : EINVAL;
	return strtoull(text, end, 10);
}

uint64_t
parse_time(const char **text)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000},
	    {"d", 86400000}};
	char *end;
	uint64_t number = read_number(*text, &end);
	size_t i, length;

	for (i = 0; errno == 0 && i < sizeof(units) / sizeof(*units); i++) {
		length = strlen(units[i].name);
		if (strncmp(end, units[i].name, length) != 0 ||
		    number > HWT_DURABLE_DELAY_MAX / HWT_MS(units[i].ms))
			continue;
		*text = end + length;
		return number * HWT_MS(units[i].ms);
	}
	program_fail(STATUS_USAGE,
	    "'%s' is not a time up to 10 years, as 500ms, 30s, 5m, 2h or 7d",
	    *text);
}

static void
set_option(const struct program_option *option, const char *text)
{
	const char *rest = text;
	char *end;

	if (option->read != NULL)
		option->read(text);
	if (option->text != NULL)
		*option->text = option->flag ? "" : text;
	if (option->time != NULL) {
		*option->time = parse_time(&rest);
		if (*rest != '\0')
			program_fail(STATUS_USAGE, "'%s' is not a time", text);
	}
	if (option->number == NULL)
		return;
	*option->number = read_number(text, &end);
	if (errno != 0 || *end != '\0' || *option->number < option->least ||
	    *option->number > option->most)
		program_fail(STATUS_USAGE,
		    "'%s' is not a number from %llu to %llu", text,
		    (unsigned long long)option->least,
		    (unsigned long long)option->most);
}

int
program_parse(int argc, char **argv)
{
	const struct program_option **table = program.options;
	const struct program_option *all[OPTIONS_MAX], *option;
	struct option known[OPTIONS_MAX + 1] = {
	    {"version", no_argument, NULL, 'v'},
	    {"help", no_argument, NULL, 'h'}};
	int letter, at, count = 2;

	for (; *table != NULL; table++) {
		for (option = *table; option->name != NULL; option++) {
			all[count] = option;
			known[count++] = (struct option){option->name,
			    option->flag ? no_argument : required_argument,
			    NULL, 'o'};
		}
	}
	while ((letter = getopt_long(argc, argv, "", known, &at)) == 'o')
		set_option(all[at], optarg);
	if (letter == -1)
		return optind;
	if (letter == '?')
		program_usage();
	if (letter == 'v')
		printf("%s %s\n", program.name, hwt_version());
	else
		(void)fputs(program.usage, stdout);
	exit(0);
}

void
read_first_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");

	if (file == NULL || fgets(line, (int)size, file) == NULL ||
	    strcspn(line, "\r\n") == 0 || strlen(line) == size - 1)
		program_fail(STATUS_USAGE,
		    "%s: want a first line of 1 to %zu bytes", path, size - 2);
	(void)fclose(file);
	line[strcspn(line, "\r\n")] = '\0';
}

/*
 * The server.
 */

const char *
error_text(int error)
{
	static const struct {
		int error;
		const char *text;
	} known[] = {
	    {-ETIMEDOUT,
		"no answer in time, so it may have been done or not; repeat it "
		"with the same id"},
	    {-ECONNREFUSED, "the server is not reached"},
	    {-EAGAIN, "the server is loading or failing over"},
	    {-ENOSPC, "the server's disk or memory, or the queue, is full"},
	    {-EOPNOTSUPP,
		"no server of hwt, or it keeps less than the queue's level"},
	    {-EACCES, "wrong user or password, or no right to do that"},
	    {-EINVAL, "a name or a value is outside its range"},
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (known[i].error == error)
			return known[i].text;
	}
	return strerror(-error);
}

struct hwt_durable *
program_open(void)
{
	struct hwt_durable *durable;
	int error = hwt_durable_open(&durable, &program.connect);

	if (error != 0)
		program_fail(error == -EINVAL ? STATUS_USAGE : STATUS_SERVER,
		    "%s: %s",
		    program.connect.servers != NULL ? program.connect.servers
						    : "127.0.0.1:7379",
		    error_text(error));
	return durable;
}

void
encode(char *to, const char *bytes, size_t length)
{
	for (; length > 0; length--, bytes++) {
		unsigned char c = (unsigned char)*bytes;

		if ((c >= '0' && c <= '9') ||
		    ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' ||
		    c == '_' || c == '~')
			*to++ = (char)c;
		else
			to += sprintf(to, "%%%02X", c);
	}
	*to = '\0';
}

void
print_bytes(FILE *to, const char *bytes, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++) {
		if (bytes[i] < ' ' || bytes[i] > '~' || bytes[i] == '\\')
			(void)fprintf(to, "\\x%02x", (unsigned char)bytes[i]);
		else
			(void)fputc(bytes[i], to);
	}
}

const char *
state_text(long long state)
{
	static const char *const texts[] = {
	    "stored", "waiting", "due", "running", "done", "dead", "cancelled"};

	return state >= 0 && state < 7 ? texts[state] : "unknown";
}

void
words_add_bytes(struct words *words, const void *bytes, size_t length)
{
	words->word[words->count++] = (struct durable_word){bytes, length};
}

void
words_add(struct words *words, const char *text)
{
	words_add_bytes(words, text, strlen(text));
}

bool
queue_is_valid(const char *name)
{
	return name_is_valid(name, HWT_DURABLE_QUEUE_MAX);
}

struct names {
	const char *space;
	char cursor[CURSOR_SIZE];
	struct durable_word words[3]; /* of the command */
	queue_name *name;
	size_t count;
};

/* The queue of a key, {SPACE:QUEUE}. False: it is of another space, or none. */
static bool
read_key(const redisReply *key, const char *space, queue_name *name)
{
	queue_name found;
	int end = 0;

	return key->str != NULL &&
	    sscanf(key->str, "{%64[^:]:%64[^}]}%n", found, *name, &end) == 2 &&
	    (size_t)end == key->len && strcmp(found, space) == 0 &&
	    queue_is_valid(*name);
}

static int
keep_names(void *ctx, const redisReply *reply)
{
	struct names *names = ctx;
	const redisReply *keys;
	queue_name *more;
	size_t i;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
	    reply->element[0]->type != REDIS_REPLY_STRING ||
	    reply->element[0]->len >= sizeof(names->cursor))
		return -EPROTO;
	keys = reply->element[1];
	more = realloc(
	    names->name, (names->count + keys->elements + 1) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	names->name = more;
	for (i = 0; i < keys->elements; i++)
		names->count += read_key(
		    keys->element[i], names->space, &more[names->count]);
	names->words[1].length = reply->element[0]->len;
	(void)strcpy(names->cursor, reply->element[0]->str);
	return strcmp(names->cursor, "0") != 0;
}

static int
compare_names(const void *one, const void *other)
{
	return strcmp(one, other);
}

int
read_queues(struct hwt_durable *durable, queue_name **found, size_t *count)
{
	struct names names = {.space = durable_space(durable),
	    .cursor = "0",
	    .words = {{"HWT.QUEUES", 10}, {names.cursor, 1}, {PAGE, 3}}};
	queue_name *name;
	size_t i;
	int error =
	    durable_call_each(durable, names.words, 3, keep_names, &names);

	*found = name = names.name;
	*count = 0;
	if (names.count > 0)
		qsort(name, names.count, sizeof(*name), compare_names);
	/* A scan may tell of one twice. */
	for (i = 0; i < names.count; i++) {
		if (i == 0 || strcmp(name[*count - 1], name[i]) != 0)
			memmove(name[(*count)++], name[i], sizeof(*name));
	}
	return error;
}

/*
 * Workers.
 */

int
program_start(void)
{
	sigset_t set;
	int error, signals;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGPIPE);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)sigdelset(&set, SIGPIPE);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (signals < 0)
		program_fail(STATUS_SERVER, "signalfd: %s", strerror(errno));
	program.durable = program_open();
	error = hwt_durable_worker_start(
	    &program.worker, program.durable, &program.work);
	if (error != 0)
		program_fail(error == -EINVAL ? STATUS_USAGE : STATUS_SERVER,
		    "%s", error_text(error));
	return signals;
}

int
program_failed(const char *id, uint32_t attempt, uint32_t max_attempts,
    int outcome, const char *reason)
{
	flockfile(stderr);
	(void)fprintf(stderr, "%s: ", program.name);
	print_bytes(stderr, id, strlen(id));
	(void)fprintf(stderr, ": attempt %u: ", attempt);
	print_bytes(stderr, reason, strlen(reason));
	(void)fputc('\n', stderr);
	funlockfile(stderr);
	return attempt >= max_attempts ? HWT_DURABLE_FAIL : outcome;
}
