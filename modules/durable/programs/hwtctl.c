/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl: one command to a server of queues. See man hwtctl (1). */
#define _GNU_SOURCE
#include "modules/durable/programs/hwtctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static const char usage[] =
    "usage: hwtctl add QUEUE [PAYLOAD | -] [--in TIME | --at WHEN] [--id ID]\n"
    "              [--attempts N] [--retry FIRST:MOST] [--expires TIME]\n"
    "              [--result TIME]\n"
    "       hwtctl cancel QUEUE ID...\n"
    "       hwtctl reschedule QUEUE ID... --in TIME | --at WHEN\n"
    "       hwtctl show QUEUE ID\n"
    "       hwtctl list QUEUE STATE [--limit N]\n"
    "       hwtctl dead QUEUE [list] [--limit N]\n"
    "       hwtctl dead QUEUE replay|drop ID... | --all\n"
    "       hwtctl queue QUEUE [--pause | --resume] [--running N] [--rate N]\n"
    "              [--max N] [--level fsync|memory]\n"
    "       hwtctl stat [QUEUE]\n"
    "       hwtctl schedule list\n"
    "       hwtctl schedule add NAME QUEUE [PAYLOAD | -] --every TIME |\n"
    "              --cron 'M H D M W' [--zone NAME] [--late TIME]\n"
    "              [--attempts N] [--retry FIRST:MOST] [--expires TIME]\n"
    "       hwtctl schedule remove NAME...\n" USAGE_SHARED
    "WHEN is 2026-11-28T14:00:00Z, or @ and seconds of Unix time.\n";

void
words_add(struct words *words, const char *text)
{
	words_add_bytes(words, text, strlen(text));
}

void
words_add_bytes(struct words *words, const void *bytes, size_t length)
{
	words->word[words->count++] = (struct durable_word){bytes, length};
}

redisReply *
request_call(
    const struct request *request, const char *queue, const struct words *words)
{
	redisReply *reply = NULL;
	int error = durable_call(
	    request->durable, queue, words->word, words->count, &reply);

	if (error == 0)
		return reply;
	program_fail(request->program,
	    reply != NULL && strncmp(reply->str, "ARG", 3) == 0 ? STATUS_USAGE
								: STATUS_SERVER,
	    "%s", reply != NULL ? reply->str : error_text(error));
}

static uint64_t
now_ms(void)
{
	struct timespec at;

	(void)clock_gettime(CLOCK_REALTIME, &at);
	return (uint64_t)at.tv_sec * 1000 + (uint64_t)at.tv_nsec / 1000000;
}

/* Of --at. */
static uint64_t
parse_when(const struct request *request)
{
	struct tm tm = {.tm_sec = 0};
	const char *end;

	if (request->at[0] == '@')
		return 1000 *
		    parse_number(request->program, request->at + 1, 0,
			UINT64_C(1) << 40);
	end = strptime(request->at, "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (end == NULL || *end != '\0' || timegm(&tm) < 0)
		program_fail(request->program, STATUS_USAGE,
		    "'%s' is not a time as 2026-11-28T14:00:00Z or @1795874400",
		    request->at);
	return 1000 * (uint64_t)timegm(&tm);
}

bool
request_due(const struct request *request, struct words *words)
{
	static char text[24];

	if ((request->in != NULL) == (request->at != NULL))
		return false;
	(void)snprintf(text, sizeof(text), "%llu",
	    (unsigned long long)(request->in != NULL
		    ? parse_time(request->program, request->in) / HWT_MS(1)
		    : parse_when(request)));
	words_add(words, request->in != NULL ? "IN" : "DUE");
	words_add(words, text);
	return true;
}

static char *
read_input(const struct request *request, size_t *length)
{
	char *bytes = malloc(HWT_DURABLE_PAYLOAD_MAX + 1);

	if (bytes == NULL)
		program_fail(request->program, STATUS_USAGE, "no memory");
	*length = fread(bytes, 1, HWT_DURABLE_PAYLOAD_MAX + 1, stdin);
	if (ferror(stdin) || *length > HWT_DURABLE_PAYLOAD_MAX)
		program_fail(request->program, STATUS_USAGE,
		    "standard input cannot be read, or is longer than 1 MiB");
	return bytes;
}

char *
request_payload(
    const struct request *request, const char *argument, size_t *length)
{
	char *copy;

	if (argument != NULL && strcmp(argument, "-") == 0)
		return read_input(request, length);
	copy = strdup(argument != NULL ? argument : "");
	if (copy == NULL)
		program_fail(request->program, STATUS_USAGE, "no memory");
	*length = strlen(copy);
	return copy;
}

static const char *
random_id(void)
{
	static char id[33];
	unsigned char bytes[16];
	size_t i;

	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		abort();
	for (i = 0; i < sizeof(bytes); i++)
		(void)sprintf(id + 2 * i, "%02x", bytes[i]);
	return id;
}

static const char *const states[] = {
    "stored", "waiting", "due", "running", "done", "dead", "cancelled"};

/* The words of it that are options of HWT.ADD. */
static void
fill_task(const struct request *request, struct hwt_durable_task *task)
{
	const struct program *program = request->program;

	if (request->in != NULL && request->at != NULL)
		program_usage(program);
	if (request->in != NULL)
		task->delay_ns = parse_time(program, request->in);
	if (request->at != NULL) {
		uint64_t due_ms = parse_when(request);

		if (due_ms > now_ms() + HWT_DURABLE_DELAY_MAX / HWT_MS(1))
			program_fail(program, STATUS_USAGE,
			    "'%s' is more than 10 years from now", request->at);
		task->due_unix_ns = due_ms * HWT_MS(1);
		task->flags = HWT_DURABLE_AT;
	}
	if (request->attempts != NULL)
		task->max_attempts = (uint32_t)parse_number(
		    program, request->attempts, 1, HWT_DURABLE_ATTEMPTS_MAX);
	if (request->retry != NULL)
		parse_retry(program, request->retry, &task->retry_first_ns,
		    &task->retry_most_ns);
	if (request->expires != NULL)
		task->expires_ns = parse_time(program, request->expires);
	if (request->result != NULL)
		task->result_ns = parse_time(program, request->result);
}

static int
run_add(struct request *request)
{
	struct hwt_durable_task task = {.queue = request->argv[0]};
	char *payload =
	    request_payload(request, request->argv[1], &task.payload_length);
	int error, result = 0;

	task.payload = payload;
	task.id = request->id != NULL ? request->id : random_id();
	task.id_length = strlen(task.id);
	fill_task(request, &task);
	error = hwt_durable_add(request->durable, 1, &task, &result);
	free(payload);
	if (error != 0)
		program_fail(request->program,
		    error == -EINVAL ? STATUS_USAGE : STATUS_SERVER, "%s: %s",
		    task.id, error_text(error));
	printf("%s\n", task.id);
	if (result != 0)
		(void)fprintf(stderr,
		    "hwtctl: nothing has changed: it is there, and %s\n",
		    states[result]);
	return result == HWT_DURABLE_DEAD || result == HWT_DURABLE_CANCELLED
	    ? STATUS_NO
	    : 0;
}

int
request_each_id(const struct request *request, const char *queue,
    struct words *words, char **ids, int count, const char *refused)
{
	redisReply *reply;
	int i, status = 0;

	if (count == 0 || count > HWT_DURABLE_BATCH_MAX)
		program_usage(request->program);
	for (i = 0; i < count; i++)
		words_add(words, ids[i]);
	reply = request_call(request, queue, words);
	for (i = 0; i < count; i++) {
		if (reply->element[i]->integer == 1)
			continue;
		(void)fprintf(stderr, "hwtctl: ");
		print_bytes(stderr, ids[i], strlen(ids[i]));
		(void)fprintf(stderr, ": %s\n", refused);
		status = STATUS_NO;
	}
	freeReplyObject(reply);
	return status;
}

static int
run_cancel(struct request *request)
{
	struct words words = {.count = 0};

	words_add(&words, "HWT.CANCEL");
	return request_each_id(request, request->argv[0], &words,
	    request->argv + 1, request->argc - 1,
	    "there is no such task, or it has ended");
}

static int
run_reschedule(struct request *request)
{
	struct words words = {.count = 0};

	words_add(&words, "HWT.RESCHEDULE");
	if (!request_due(request, &words))
		program_usage(request->program);
	return request_each_id(request, request->argv[0], &words,
	    request->argv + 1, request->argc - 1,
	    "there is no such task, or it has ended");
}

void
print_time(const char *name, long long ms)
{
	time_t seconds = (time_t)(ms / 1000);
	char text[32];
	struct tm tm;

	(void)gmtime_r(&seconds, &tm);
	(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	printf("%s%s.%03lldZ", name, text, ms % 1000);
}

static int
run_show(struct request *request)
{
	struct words words = {.count = 0};
	redisReply *reply;
	size_t i;

	words_add(&words, "HWT.GET");
	words_add(&words, request->argv[1]);
	reply = request_call(request, request->argv[0], &words);
	if (reply->type != REDIS_REPLY_ARRAY)
		program_fail(request->program, STATUS_NO,
		    "there is no such task, or it is forgotten");
	for (i = 0; i + 1 < reply->elements; i += 2) {
		const redisReply *name = reply->element[i];
		const redisReply *value = reply->element[i + 1];

		printf("%-12s ", name->str);
		if (value->type != REDIS_REPLY_INTEGER)
			print_bytes(stdout, value->str, value->len);
		else if (strcmp(name->str, "due") == 0 ||
		    (strcmp(name->str, "time") == 0 && value->integer > 0))
			print_time("", value->integer);
		else
			printf("%lld", value->integer);
		(void)putchar('\n');
	}
	freeReplyObject(reply);
	return 0;
}

/* Letters of the options that each takes; the least and most of what follows
 * it. */
static const struct {
	const char *name, *options;
	int least, most;
	int (*run)(struct request *request);
} commands[] = {
    {"add", "iawrefk", 1, 2, run_add},
    {"cancel", "", 2, 1 + HWT_DURABLE_BATCH_MAX, run_cancel},
    {"reschedule", "iw", 2, 1 + HWT_DURABLE_BATCH_MAX, run_reschedule},
    {"show", "", 2, 2, run_show},
    {"list", "l", 2, 2, run_list},
    {"dead", "lo", 1, 2 + HWT_DURABLE_BATCH_MAX, run_dead},
    {"queue", "pungmv", 1, 1, run_queue},
    {"stat", "", 0, 1, run_stat},
    {"schedule", "yczhare", 1, 1 + HWT_DURABLE_BATCH_MAX, run_schedule},
};

static const struct option known[] = {
    OPTIONS_SHARED,
    {"id", required_argument, NULL, 'k'},
    {"in", required_argument, NULL, 'i'},
    {"at", required_argument, NULL, 'w'},
    {"attempts", required_argument, NULL, 'a'},
    {"retry", required_argument, NULL, 'r'},
    {"expires", required_argument, NULL, 'e'},
    {"result", required_argument, NULL, 'f'},
    {"limit", required_argument, NULL, 'l'},
    {"all", no_argument, NULL, 'o'},
    {"pause", no_argument, NULL, 'p'},
    {"resume", no_argument, NULL, 'u'},
    {"running", required_argument, NULL, 'n'},
    {"rate", required_argument, NULL, 'g'},
    {"max", required_argument, NULL, 'm'},
    {"level", required_argument, NULL, 'v'},
    {"every", required_argument, NULL, 'y'},
    {"cron", required_argument, NULL, 'c'},
    {"zone", required_argument, NULL, 'z'},
    {"late", required_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Where the value of an option goes. */
static const char **
place_of(struct request *request, int option)
{
	const struct {
		int option;
		const char **place;
	} places[] = {
	    {'k', &request->id},
	    {'i', &request->in},
	    {'w', &request->at},
	    {'a', &request->attempts},
	    {'r', &request->retry},
	    {'e', &request->expires},
	    {'f', &request->result},
	    {'l', &request->limit},
	    {'n', &request->running},
	    {'g', &request->rate},
	    {'m', &request->max},
	    {'v', &request->level},
	    {'y', &request->every},
	    {'c', &request->cron},
	    {'z', &request->zone},
	    {'h', &request->late},
	};
	size_t i;

	for (i = 0; i < sizeof(places) / sizeof(*places); i++) {
		if (places[i].option == option)
			return places[i].place;
	}
	return NULL;
}

static void
parse(struct request *request, const char *allowed, int argc, char **argv)
{
	const char **place;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option_is_shared(request->program, option, optarg))
			continue;
		if (option == '?' || strchr(allowed, option) == NULL)
			program_usage(request->program);
		place = place_of(request, option);
		if (place != NULL)
			*place = optarg;
		request->pause |= option == 'p';
		request->resume |= option == 'u';
		request->all |= option == 'o';
	}
	request->argc = argc - optind;
	request->argv = argv + optind;
}

int
main(int argc, char **argv)
{
	struct program program = {.name = "hwtctl", .usage = usage};
	struct request request = {.program = &program};
	const size_t count = sizeof(commands) / sizeof(*commands);
	size_t i = 0;
	int status;

	if (argc < 2 || argv[1][0] == '-') {
		parse(&request, "", argc, argv);
		program_usage(&program);
	}
	while (i < count && strcmp(argv[1], commands[i].name) != 0)
		i++;
	if (i == count)
		program_usage(&program);
	parse(&request, commands[i].options, argc - 1, argv + 1);
	if (request.argc < commands[i].least || request.argc > commands[i].most)
		program_usage(&program);
	request.durable = program_open(&program);
	status = commands[i].run(&request);
	(void)hwt_durable_close(request.durable);
	if (fflush(stdout) != 0)
		program_fail(&program, STATUS_SERVER, "standard output: %s",
		    strerror(errno));
	return status;
}
