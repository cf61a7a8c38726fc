/* SPDX-License-Identifier: Apache-2.0 */
#include "modules/durable/programs/options.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

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

bool
option_is_shared(int option, const char *argument)
{
	switch (option) {
	case 'S':
		program.connect.servers = argument;
		return true;
	case 'N':
		program.connect.space = argument;
		return true;
	case 'U':
		program.connect.user = argument;
		return true;
	case 'P':
		program.connect.password_file = argument;
		return true;
	case 'T':
		program.connect.timeout_ns = parse_time(argument);
		return true;
	case 'V':
		printf("%s %s\n", program.name, hwt_version());
		exit(0);
	case 'H':
		(void)fputs(program.usage, stdout);
		exit(0);
	default:
		return false;
	}
}

/* The number that text begins with; *end is what follows. */
static uint64_t
read_number(const char *text, const char **end)
{
	uint64_t number = 0;

	*end = text;
	for (; **end >= '0' && **end <= '9' && *end - text < 18; (*end)++)
		number = 10 * number + (uint64_t)(**end - '0');
	if (*end == text)
		program_fail(STATUS_USAGE, "'%s' is not a number", text);
	return number;
}

uint64_t
parse_number(const char *text, uint64_t least, uint64_t most)
{
	const char *end;
	uint64_t number = read_number(text, &end);

	if (*end != '\0' || number < least || number > most)
		program_fail(STATUS_USAGE,
		    "'%s' is not a number from %llu to %llu", text,
		    (unsigned long long)least, (unsigned long long)most);
	return number;
}

static uint64_t
read_time(const char *text, const char **end)
{
	static const struct {
		const char *name;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000},
	    {"d", 86400000}};
	uint64_t number = read_number(text, end);
	size_t i, length;

	for (i = 0; i < sizeof(units) / sizeof(*units); i++) {
		length = strlen(units[i].name);
		if (strncmp(*end, units[i].name, length) != 0)
			continue;
		*end += length;
		if (number > HWT_DURABLE_DELAY_MAX / HWT_MS(units[i].ms))
			break;
		return number * HWT_MS(units[i].ms);
	}
	program_fail(STATUS_USAGE,
	    "'%s' is not a time up to 10 years, as 500ms, 30s, 5m, 2h or 7d",
	    text);
}

uint64_t
parse_time(const char *text)
{
	const char *end;
	uint64_t ns = read_time(text, &end);

	if (*end != '\0')
		program_fail(STATUS_USAGE,
		    "'%s' is not a time, as 500ms, 30s, 5m, 2h or 7d", text);
	return ns;
}

void
parse_retry(const char *text, uint64_t *first_ns, uint64_t *most_ns)
{
	const char *end;

	*first_ns = read_time(text, &end);
	if (*end != ':')
		program_fail(
		    STATUS_USAGE, "'%s' is not FIRST:MOST, as 1s:10m", text);
	*most_ns = parse_time(end + 1);
	if (*most_ns < *first_ns)
		program_fail(STATUS_USAGE,
		    "in '%s' the first time is longer than the most", text);
}

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
print_bytes(FILE *to, const char *bytes, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)bytes[i];

		if (byte < ' ' || byte > '~' || byte == '\\')
			(void)fprintf(to, "\\x%02x", byte);
		else
			(void)fputc(byte, to);
	}
}

bool
option_is_worker(
    struct program_worker *worker, int option, const char *argument)
{
	if (option == 'Q')
		worker->options.queue = argument;
	else if (option == 'I')
		worker->options.visibility_ns = parse_time(argument);
	else if (option == 'G')
		worker->grace_ns = parse_time(argument);
	else
		return option_is_shared(option, argument);
	return true;
}

void
program_start(struct program_worker *worker)
{
	sigset_t set;
	int error;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	worker->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (worker->signals < 0)
		program_fail(STATUS_SERVER, "signalfd: %s", strerror(errno));
	worker->durable = program_open();
	error = hwt_durable_worker_start(
	    &worker->worker, worker->durable, &worker->options);
	if (error != 0)
		program_fail(error == -EINVAL ? STATUS_USAGE : STATUS_SERVER,
		    "%s", error_text(error));
}
