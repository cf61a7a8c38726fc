/* SPDX-License-Identifier: Apache-2.0 */
/* hwtctl: one command to a server of queues. See man hwtctl (1). */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "modules/durable/client/call.h"
#include "modules/durable/programs/options.h"

#define PAGE "100" /* tasks of one answer, about */
#define CURSOR_SIZE 24

static const char usage[] =
    "usage: hwtctl add QUEUE [PAYLOAD | -] [--in TIME | --at WHEN] [--id ID]\n"
    "              [--attempts N] [--retry FIRST:MOST] [--expires TIME]\n"
    "              [--result TIME]\n"
    "       hwtctl cancel QUEUE ID...\n"
    "       hwtctl reschedule QUEUE ID... --in TIME | --at WHEN\n"
    "       hwtctl show QUEUE ID\n"
    "       hwtctl list QUEUE STATE\n"
    "       hwtctl dead QUEUE [replay ID... | drop ID...]\n"
    "       hwtctl queue QUEUE [--pause | --resume] [--running N] [--rate N]\n"
    "              [--max N] [--level fsync|memory]\n"
    "       hwtctl stat [QUEUE]\n" USAGE_SHARED
    "WHEN is 2026-11-28T14:00:00Z, or @ and seconds of Unix time.\n";

struct program program = {.name = "hwtctl", .usage = usage};
static struct hwt_durable *durable;

/* Of the options; NULL: not given. A flag has "". */
static struct {
	const char *in, *at, *id, *attempts, *retry, *expires, *result;
	const char *pause, *resume, *running, *rate, *max, *level;
} given;

/* A command in the making. Texts must outlive it. */
struct words {
	size_t count;
	struct durable_word word[16 + HWT_DURABLE_BATCH_MAX];
};

static void
words_add_bytes(struct words *words, const void *bytes, size_t length)
{
	words->word[words->count++] = (struct durable_word){bytes, length};
}

static void
words_add(struct words *words, const char *text)
{
	words_add_bytes(words, text, strlen(text));
}

static redisReply *
request_call(const char *queue, const struct words *words)
{
	redisReply *reply = NULL;
	int error =
	    durable_call(durable, queue, words->word, words->count, &reply);

	if (error == 0)
		return reply;
	program_fail(reply != NULL && strncmp(reply->str, "ARG", 3) == 0
		? STATUS_USAGE
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
parse_when(void)
{
	struct tm tm = {.tm_sec = 0};
	const char *end;

	if (given.at[0] == '@')
		return 1000 * parse_number(given.at + 1, 0, UINT64_C(1) << 40);
	end = strptime(given.at, "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (end == NULL || *end != '\0' || timegm(&tm) < 0)
		program_fail(STATUS_USAGE,
		    "'%s' is not a time as 2026-11-28T14:00:00Z or @1795874400",
		    given.at);
	return 1000 * (uint64_t)timegm(&tm);
}

static bool
request_due(struct words *words)
{
	static char text[24];

	if ((given.in != NULL) == (given.at != NULL))
		return false;
	(void)snprintf(text, sizeof(text), "%llu",
	    (unsigned long long)(given.in != NULL
		    ? parse_time(given.in) / HWT_MS(1)
		    : parse_when()));
	words_add(words, given.in != NULL ? "IN" : "DUE");
	words_add(words, text);
	return true;
}

static char *
read_input(size_t *length)
{
	char *bytes = malloc(HWT_DURABLE_PAYLOAD_MAX + 1);

	if (bytes == NULL)
		program_fail(STATUS_USAGE, "no memory");
	*length = fread(bytes, 1, HWT_DURABLE_PAYLOAD_MAX + 1, stdin);
	if (ferror(stdin) || *length > HWT_DURABLE_PAYLOAD_MAX)
		program_fail(STATUS_USAGE,
		    "standard input cannot be read, or is longer than 1 MiB");
	return bytes;
}

static char *
request_payload(const char *argument, size_t *length)
{
	char *copy;

	if (argument != NULL && strcmp(argument, "-") == 0)
		return read_input(length);
	copy = strdup(argument != NULL ? argument : "");
	if (copy == NULL)
		program_fail(STATUS_USAGE, "no memory");
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
fill_task(struct hwt_durable_task *task)
{
	if (given.in != NULL && given.at != NULL)
		program_usage();
	if (given.in != NULL)
		task->delay_ns = parse_time(given.in);
	if (given.at != NULL) {
		uint64_t due_ms = parse_when();

		if (due_ms > now_ms() + HWT_DURABLE_DELAY_MAX / HWT_MS(1))
			program_fail(STATUS_USAGE,
			    "'%s' is more than 10 years from now", given.at);
		task->due_unix_ns = due_ms * HWT_MS(1);
		task->flags = HWT_DURABLE_AT;
	}
	if (given.attempts != NULL)
		task->max_attempts = (uint32_t)parse_number(
		    given.attempts, 1, HWT_DURABLE_ATTEMPTS_MAX);
	if (given.retry != NULL)
		parse_retry(
		    given.retry, &task->retry_first_ns, &task->retry_most_ns);
	if (given.expires != NULL)
		task->expires_ns = parse_time(given.expires);
	if (given.result != NULL)
		task->result_ns = parse_time(given.result);
}

static int
run_add(int argc, char **argv)
{
	struct hwt_durable_task task = {.queue = argv[0]};
	char *payload = request_payload(argv[1], &task.payload_length);
	int error, result = 0;

	(void)argc;
	task.payload = payload;
	task.id = given.id != NULL ? given.id : random_id();
	task.id_length = strlen(task.id);
	fill_task(&task);
	error = hwt_durable_add(durable, 1, &task, &result);
	free(payload);
	if (error != 0)
		program_fail(error == -EINVAL ? STATUS_USAGE : STATUS_SERVER,
		    "%s: %s", task.id, error_text(error));
	printf("%s\n", task.id);
	if (result != 0)
		(void)fprintf(stderr,
		    "hwtctl: nothing has changed: it is there, and %s\n",
		    states[result]);
	return result == HWT_DURABLE_DEAD || result == HWT_DURABLE_CANCELLED
	    ? STATUS_NO
	    : 0;
}

static int
request_each_id(const char *queue, struct words *words, char **ids, int count,
    const char *refused)
{
	redisReply *reply;
	int i, status = 0;

	if (count == 0 || count > HWT_DURABLE_BATCH_MAX)
		program_usage();
	for (i = 0; i < count; i++)
		words_add(words, ids[i]);
	reply = request_call(queue, words);
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
run_cancel(int argc, char **argv)
{
	struct words words = {.count = 0};

	words_add(&words, "HWT.CANCEL");
	return request_each_id(argv[0], &words, argv + 1, argc - 1,
	    "there is no such task, or it has ended");
}

static int
run_reschedule(int argc, char **argv)
{
	struct words words = {.count = 0};

	words_add(&words, "HWT.RESCHEDULE");
	if (!request_due(&words))
		program_usage();
	return request_each_id(argv[0], &words, argv + 1, argc - 1,
	    "there is no such task, or it has ended");
}

static void
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
run_show(int argc, char **argv)
{
	struct words words = {.count = 0};
	redisReply *reply;
	size_t i;

	(void)argc;
	words_add(&words, "HWT.GET");
	words_add(&words, argv[1]);
	reply = request_call(argv[0], &words);
	if (reply->type != REDIS_REPLY_ARRAY)
		program_fail(
		    STATUS_NO, "there is no such task, or it is forgotten");
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

/* Id, time and attempt; the reason of a dead letter. */
static void
print_task(const redisReply *task)
{
	print_bytes(stdout, task->element[0]->str, task->element[0]->len);
	if (task->element[1]->integer > 0)
		print_time("\t", task->element[1]->integer);
	else
		printf("\t-");
	printf("\t%lld", task->element[2]->integer);
	if (task->elements > 3) {
		(void)putchar('\t');
		print_bytes(
		    stdout, task->element[3]->str, task->element[3]->len);
	}
	(void)putchar('\n');
}

/* Tasks that change their state meanwhile may be missed, or come twice. */
static void
print_list(const char *queue, const char *state)
{
	char cursor[CURSOR_SIZE] = "0";

	do {
		struct words words = {.count = 0};
		redisReply *reply;
		size_t i;

		words_add(&words, "HWT.LIST");
		words_add(&words, state);
		words_add(&words, cursor);
		words_add(&words, PAGE);
		reply = request_call(queue, &words);
		for (i = 0; i < reply->element[1]->elements; i++)
			print_task(reply->element[1]->element[i]);
		(void)snprintf(
		    cursor, sizeof(cursor), "%s", reply->element[0]->str);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
}

static int
run_list(int argc, char **argv)
{
	(void)argc;
	print_list(argv[0], argv[1]);
	return 0;
}

static int
run_dead(int argc, char **argv)
{
	struct words words = {.count = 0};

	if (argc == 1) {
		print_list(argv[0], "dead");
		return 0;
	}
	if (strcmp(argv[1], "replay") != 0 && strcmp(argv[1], "drop") != 0)
		program_usage();
	words_add(&words, "HWT.DEAD");
	words_add(&words, argv[1]);
	return request_each_id(argv[0], &words, argv + 2, argc - 2,
	    "there is no such dead letter");
}

static void
print_pairs(const redisReply *reply)
{
	size_t i;

	for (i = 0; i + 1 < reply->elements; i += 2) {
		const redisReply *value = reply->element[i + 1];

		printf("%-20s ", reply->element[i]->str);
		if (value->type == REDIS_REPLY_INTEGER)
			printf("%lld\n", value->integer);
		else
			printf("%s\n", value->str);
	}
}

static void
add_limit(struct words *words, const char *name, const char *value)
{
	if (value == NULL)
		return;
	(void)parse_number(value, 0, 1000000000);
	words_add(words, name);
	words_add(words, value);
}

static int
run_queue(int argc, char **argv)
{
	struct words words = {.count = 0};
	redisReply *reply;

	(void)argc;
	if (given.pause != NULL && given.resume != NULL)
		program_usage();
	words_add(&words, "HWT.QUEUE");
	if (given.pause != NULL || given.resume != NULL)
		words_add(&words, given.pause != NULL ? "PAUSE" : "RESUME");
	add_limit(&words, "RUNNING", given.running);
	add_limit(&words, "RATE", given.rate);
	add_limit(&words, "MAX", given.max);
	if (given.level != NULL) {
		words_add(&words, "LEVEL");
		words_add(&words, given.level);
	}
	reply = request_call(argv[0], &words);
	print_pairs(reply);
	freeReplyObject(reply);
	return 0;
}

static redisReply *
read_stat(const char *queue)
{
	struct words words = {.count = 0};

	words_add(&words, "HWT.STAT");
	return request_call(queue, &words);
}

/* The queue that a key is for, {SPACE:QUEUE}, without its end; NULL: another
 * space's. */
static char *
queue_of_key(const redisReply *key)
{
	const char *space = durable_space(durable);
	size_t before = strlen(space) + 2;

	if (key->len < before + 2 || key->str[0] != '{' ||
	    memcmp(key->str + 1, space, before - 2) != 0 ||
	    key->str[before - 1] != ':' || key->str[key->len - 1] != '}')
		return NULL;
	key->str[key->len - 1] = '\0';
	return key->str + before;
}

static int
print_queues(void *ctx, const redisReply *reply)
{
	char *queue, *cursor = ctx;
	redisReply *stat;
	size_t i, j;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
		program_fail(STATUS_SERVER, "HWT.QUEUES: %s",
		    reply->type == REDIS_REPLY_ERROR ? reply->str : "no list");
	(void)snprintf(cursor, CURSOR_SIZE, "%s", reply->element[0]->str);
	for (i = 0; i < reply->element[1]->elements; i++) {
		queue = queue_of_key(reply->element[1]->element[i]);
		if (queue == NULL)
			continue;
		stat = read_stat(queue);
		printf("%-24s", queue);
		for (j = 1; j < 12 && j < stat->elements; j += 2)
			printf(" %10lld", stat->element[j]->integer);
		(void)putchar('\n');
		freeReplyObject(stat);
	}
	return 0;
}

static int
run_stat(int argc, char **argv)
{
	char cursor[CURSOR_SIZE] = "0";
	redisReply *reply;
	int error;

	if (argc > 0) {
		reply = read_stat(argv[0]);
		print_pairs(reply);
		freeReplyObject(reply);
		return 0;
	}
	printf("%-24s %10s %10s %10s %10s %10s %10s\n", "queue", "waiting",
	    "due", "running", "done", "dead", "cancelled");
	do {
		const struct durable_word words[] = {
		    {"HWT.QUEUES", 10}, {cursor, strlen(cursor)}, {"500", 3}};

		error =
		    durable_call_each(durable, words, 3, print_queues, cursor);
		if (error != 0)
			program_fail(STATUS_SERVER, "%s", error_text(error));
	} while (strcmp(cursor, "0") != 0);
	return 0;
}

/* The least and most of what follows it. */
static const struct command {
	const char *name;
	int least, most;
	int (*run)(int argc, char **argv);
} commands[] = {
    {"add", 1, 2, run_add},
    {"cancel", 2, 1 + HWT_DURABLE_BATCH_MAX, run_cancel},
    {"reschedule", 2, 1 + HWT_DURABLE_BATCH_MAX, run_reschedule},
    {"show", 2, 2, run_show},
    {"list", 2, 2, run_list},
    {"dead", 1, 2 + HWT_DURABLE_BATCH_MAX, run_dead},
    {"queue", 1, 1, run_queue},
    {"stat", 0, 1, run_stat},
};

/* Where the value goes, and which commands take it. */
static const struct {
	const char *name;
	int argument;
	const char **value;
	const char *commands;
} options[] = {
    {"in", required_argument, &given.in, "add reschedule"},
    {"at", required_argument, &given.at, "add reschedule"},
    {"id", required_argument, &given.id, "add"},
    {"attempts", required_argument, &given.attempts, "add"},
    {"retry", required_argument, &given.retry, "add"},
    {"expires", required_argument, &given.expires, "add"},
    {"result", required_argument, &given.result, "add"},
    {"pause", no_argument, &given.pause, "queue"},
    {"resume", no_argument, &given.resume, "queue"},
    {"running", required_argument, &given.running, "queue"},
    {"rate", required_argument, &given.rate, "queue"},
    {"max", required_argument, &given.max, "queue"},
    {"level", required_argument, &given.level, "queue"},
};

#define OPTIONS (sizeof(options) / sizeof(*options))
#define SHARED (sizeof(shared) / sizeof(*shared))
#define FIRST 256 /* beyond the letters of shared ones */

/* Reads all options; the rest is from optind on. */
static void
parse(const char *command, int argc, char **argv)
{
	static const struct option shared[] = {OPTIONS_SHARED};
	struct option known[SHARED + OPTIONS + 1] = {{.name = NULL}};
	size_t i;
	int option;

	memcpy(known, shared, sizeof(shared));
	for (i = 0; i < OPTIONS; i++)
		known[SHARED + i] = (struct option){
		    options[i].name, options[i].argument, NULL, FIRST + (int)i};
	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option_is_shared(option, optarg))
			continue;
		if (option < FIRST ||
		    strstr(options[option - FIRST].commands, command) == NULL)
			program_usage();
		*options[option - FIRST].value = optarg != NULL ? optarg : "";
	}
}

int
main(int argc, char **argv)
{
	const struct command *command = commands;
	int status;

	if (argc < 2 || argv[1][0] == '-') {
		parse("-", argc, argv);
		program_usage();
	}
	while (strcmp(argv[1], command->name) != 0) {
		if (++command ==
		    commands + sizeof(commands) / sizeof(*commands))
			program_usage();
	}
	argc--, argv++;
	parse(command->name, argc, argv);
	argc -= optind, argv += optind;
	if (argc < command->least || argc > command->most)
		program_usage();
	durable = program_open();
	status = command->run(argc, argv);
	(void)hwt_durable_close(durable);
	if (fflush(stdout) != 0)
		program_fail(
		    STATUS_SERVER, "standard output: %s", strerror(errno));
	return status;
}
