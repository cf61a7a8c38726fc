/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "modules/durable/durable.h"
#include "modules/durable/route.h"
#include "text.h"

/* A node that fails over, or a wrong engine for a moment, is no reason. */
#define GONE_NS HWT_SEC(5)

struct hwt_durable_options open_options;

static const struct program *current;
static struct hwt_durable *opened;

static const char *redis, *sentinel, *cluster, *space, *user, *password_file,
    *replicas, *timeout, *help, *version;

static const struct option_row common[] = {
    {"redis", &redis, false},
    {"sentinel", &sentinel, false},
    {"cluster", &cluster, false},
    {"space", &space, false},
    {"user", &user, false},
    {"password-file", &password_file, false},
    {"replicas", &replicas, false},
    {"timeout", &timeout, false},
    {"help", &help, true},
    {"version", &version, true},
    {NULL, NULL, false},
};

static const char common_usage[] =
    "\n"
    "The engine, and the set of tasks on it:\n"
    "  --redis HOST:PORT|unix:PATH       Redis; 127.0.0.1:6379 without this\n"
    "  --sentinel HOST:PORT,...,NAME     the master NAME that these know\n"
    "  --cluster HOST:PORT,...           Redis Cluster\n"
    "  --space NAME                      the set of tasks; \"hwt\"\n"
    "  --user NAME                       of Redis' ACL\n"
    "  --password-file FILE              its first line is the password\n"
    "  --replicas N                      level replicated: so many; all\n"
    "  --timeout SECONDS                 of a call; 5\n"
    "\n"
    "Exit status: 0; 1: not found, or refused; 2: usage; 3: the engine cannot\n"
    "be reached, and what was asked for may have happened or not.\n";

static void complain_list(const char *format, va_list list)
    __attribute__((format(printf, 1, 0)));

static void
complain_list(const char *format, va_list list)
{
	char *text;
	int length = vasprintf(&text, format, list);

	if (length < 0)
		return;
	flockfile(stderr);
	(void)fprintf(stderr, "%s: ", current->name);
	text_write(stderr, text, (size_t)length);
	(void)fputc('\n', stderr);
	funlockfile(stderr);
	free(text);
}

void
complain(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	complain_list(format, list);
	va_end(list);
}

void
usage_error(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	complain_list(format, list);
	va_end(list);
	(void)fprintf(
	    stderr, "%s: --help says how it is used\n", current->name);
	exit(STATUS_USAGE);
}

void
finish(enum status status)
{
	if (fflush(stdout) != 0 || ferror(stdout)) {
		complain("standard output: %s", system_text(errno));
		status = status == STATUS_YES ? STATUS_NO : status;
	}
	/* Nobody waits for an engine that does not answer. */
	(void)hwt_durable_close(opened);
	exit((int)status);
}

static const char *
join(const char *first, const char *between, const char *second)
{
	char *text;

	if (asprintf(&text, "%s%s%s", first, between, second) < 0) {
		complain("no memory");
		exit(STATUS_NO);
	}
	return text;
}

static void
value_set(const struct option_row *row, const char *value)
{
	*row->value =
	    *row->value != NULL ? join(*row->value, ",", value) : value;
}

static const struct option_row *
row_find(const char *name, size_t length)
{
	const struct option_row *const tables[] = {
	    common, current->rows[0], current->rows[1]};
	const struct option_row *row;
	size_t i;

	for (i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (row = tables[i]; row != NULL && row->name != NULL; row++) {
			if (strlen(row->name) == length &&
			    memcmp(row->name, name, length) == 0)
				return row;
		}
	}
	return NULL;
}

/* Reads the option argv[at], and returns the place of the next argument. */
static int
option_read(int at, int argc, char **argv)
{
	const char *name = argv[at] + 2;
	const char *value = strchr(name, '=');
	size_t length = value != NULL ? (size_t)(value - name) : strlen(name);
	const struct option_row *row = row_find(name, length);

	if (row == NULL)
		usage_error("--%.*s: no such option", (int)length, name);
	if (*row->value != NULL &&
	    (current->many == NULL || strcmp(row->name, current->many) != 0))
		usage_error("--%s: given twice", row->name);
	if (row->flag) {
		if (value != NULL)
			usage_error("--%s takes no value", row->name);
		*row->value = "";
		return at + 1;
	}
	if (value != NULL) {
		value_set(row, value + 1);
		return at + 1;
	}
	if (at + 1 == argc)
		usage_error("--%s needs a value", row->name);
	value_set(row, argv[at + 1]);
	return at + 2;
}

/* Where the engine is; value NULL: not given. There is no user or password in
 * an address: those would be seen by all who list the processes. For the same
 * reason no message repeats it. */
static void
servers_set(const char *name, enum route_kind kind, const char *prefix,
    const char *value, const char *want)
{
	struct route_servers servers;

	if (value == NULL)
		return;
	open_options.servers = join(prefix, "", value);
	if (route_read_servers(&servers, open_options.servers) != 0 ||
	    servers.kind != kind ||
	    (servers.address[0].port != 0 && strpbrk(value, "@/") != NULL))
		usage_error("--%s: want %s", name, want);
}

static void
servers_read(void)
{
	if ((redis != NULL) + (sentinel != NULL) + (cluster != NULL) > 1)
		usage_error("--redis, --sentinel and --cluster exclude each "
			    "other");
	servers_set("redis", ROUTE_SINGLE, "", redis, "HOST:PORT or unix:PATH");
	servers_set("sentinel", ROUTE_SENTINEL, "sentinel:", sentinel,
	    "HOST:PORT,...,NAME");
	servers_set(
	    "cluster", ROUTE_CLUSTER, "cluster:", cluster, "HOST:PORT,...");
}

static void
common_read(void)
{
	servers_read();
	if (space != NULL && !name_is_valid(space, HWT_DURABLE_SPACE_MAX))
		usage_error("--space: want 1 to %d of A-Z a-z 0-9 . _ -",
		    HWT_DURABLE_SPACE_MAX);
	open_options.space = space;
	open_options.user = user;
	open_options.password_file = password_file;
	open_options.replicas =
	    (uint32_t)option_number("replicas", replicas, 0, 1, 10);
	open_options.timeout_ns =
	    option_seconds("timeout", timeout, 0, HWT_MS(1), HWT_MIN(60));
}

/* So that no connection gets the number of standard output. */
static void
descriptors_open(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		(void)close(fd);
}

int
options_read(const struct program *program, int argc, char **argv)
{
	int at = 1, rest = 0;

	current = program;
	descriptors_open();
	/* A reader that has gone is an error of the write. */
	(void)signal(SIGPIPE, SIG_IGN);
	while (at < argc) {
		if (strcmp(argv[at], "--") == 0) {
			at++;
			break;
		}
		if (strncmp(argv[at], "--", 2) == 0) {
			at = option_read(at, argc, argv);
			continue;
		}
		if (argv[at][0] == '-' && argv[at][1] != '\0')
			usage_error("%s: no such option", argv[at]);
		if (program->command)
			break;
		argv[rest++] = argv[at++];
	}
	while (at < argc)
		argv[rest++] = argv[at++];
	argv[rest] = NULL;
	if (help != NULL) {
		(void)printf("%s%s", program->usage, common_usage);
		finish(STATUS_YES);
	}
	if (version != NULL) {
		(void)printf("%s %s\n", program->name, hwt_version());
		finish(STATUS_YES);
	}
	common_read();
	return rest;
}

uint64_t
option_number(const char *name, const char *text, uint64_t otherwise,
    uint64_t min, uint64_t max)
{
	uint64_t number = otherwise;

	if (text != NULL && !text_number(text, min, max, &number))
		usage_error("--%s: want a whole number from %llu to %llu", name,
		    (unsigned long long)min, (unsigned long long)max);
	return number;
}

uint64_t
option_seconds(const char *name, const char *text, uint64_t otherwise_ns,
    uint64_t min_ns, uint64_t max_ns)
{
	uint64_t ns;

	if (text == NULL)
		return otherwise_ns;
	if (!text_seconds(text, strlen(text), &ns))
		usage_error("--%s: want seconds, as 90 or 0.25", name);
	if (ns < min_ns || ns > max_ns)
		usage_error("--%s: want %.15g to %.15g seconds", name,
		    (double)min_ns / 1e9, (double)max_ns / 1e9);
	return ns;
}

void
option_queue(const char *name, const char *text)
{
	if (!name_is_valid(text, HWT_DURABLE_QUEUE_MAX))
		usage_error("%s: want 1 to %d of A-Z a-z 0-9 . _ -", name,
		    HWT_DURABLE_QUEUE_MAX);
}

void
option_queues(const char *name, const char *text)
{
	char queue[HWT_DURABLE_QUEUES_MAX][HWT_DURABLE_QUEUE_MAX + 2];
	size_t length, count, i;

	for (count = 0;; text += length + 1) {
		if (count == HWT_DURABLE_QUEUES_MAX)
			usage_error(
			    "%s: want up to %d", name, HWT_DURABLE_QUEUES_MAX);
		length = strcspn(text, ",");
		(void)snprintf(queue[count], sizeof(queue[count]), "%.*s",
		    (int)length, text);
		option_queue(name, queue[count]);
		for (i = 0; i < count; i++) {
			if (strcmp(queue[i], queue[count]) == 0)
				usage_error(
				    "%s: %s is given twice", name, queue[i]);
		}
		count++;
		if (text[length] == '\0')
			return;
	}
}

static void
log_write(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	complain("%s", message);
}

/* Also if none is named. */
static bool
password_file_is_there(void)
{
	FILE *file;
	bool there = true;

	if (password_file == NULL)
		return true;
	file = fopen(password_file, "re");
	there = file != NULL && getc(file) != EOF;
	if (file != NULL)
		(void)fclose(file);
	return there;
}

struct hwt_durable *
handle_open(void)
{
	static const struct hwt_log log = {log_write, NULL};
	int error;

	open_options.log = &log;
	error = hwt_durable_open(&opened, &open_options);
	if (error == 0)
		return opened;
	/* The log names it. */
	if (error == -ENOENT)
		exit(password_file_is_there() ? STATUS_NO : STATUS_USAGE);
	complain("%s", explain(error));
	/* Loading, or failing over, for longer than we wait. */
	exit(
	    (int)(error == -EAGAIN ? STATUS_UNREACHABLE : error_status(error)));
}

bool
space_is_gone(void)
{
	if (!engine_is_gone(durable_engine(opened), GONE_NS))
		return false;
	complain("the space is gone, or was made anew; this ends, and can be "
		 "started again when hwtctl init, or a backup, has made it");
	return true;
}

const char *
system_text(int error)
{
	const char *text = strerrordesc_np(error);

	return text != NULL ? text : "an unexpected error";
}

const char *
explain(int error)
{
	const char *text = error_text(error);

	return text != NULL ? text : system_text(-error);
}

enum status
error_status(int error)
{
	switch (error) {
	case 0:
		return STATUS_YES;
	case -EINVAL:
		return STATUS_USAGE;
	case -ETIMEDOUT:
	case -ECONNREFUSED:
	case -EPROTO:
		return STATUS_UNREACHABLE;
	default:
		return STATUS_NO;
	}
}
