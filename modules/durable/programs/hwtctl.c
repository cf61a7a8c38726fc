/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwtctl: one command to a server of queues. See man hwtctl (1).
 *
 * Options are words of the command, which the server judges; only times are
 * converted here.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "modules/durable/programs/program.h"

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
    "       hwtctl stat [QUEUE]\n" CLIENT_USAGE
    "WHEN is 2026-11-28T14:00:00Z, or @ and seconds of Unix time.\n";

/* Options, by what their values are. Each is a word of the server's command,
 * and is for those of hwtctl's commands. */
enum value {
	VALUE_NONE,
	VALUE_WORD,
	VALUE_TIME,
	VALUE_TIMES, /* FIRST:MOST */
	VALUE_WHEN
};

enum {
	ID,
	IN,
	AT,
	PAUSE,
	RESUME,
	GIVEN = 13
};

static struct {
	const char *name, *commands, *word;
	enum value value;
	const char *text; /* NULL: it is not given */
} given[GIVEN] = {
    [ID] = {"id", "add", NULL, VALUE_NONE},
    [IN] = {"in", "add reschedule", "IN", VALUE_TIME},
    [AT] = {"at", "add reschedule", "DUE", VALUE_WHEN},
    [PAUSE] = {"pause", "queue", "PAUSE", VALUE_NONE},
    [RESUME] = {"resume", "queue", "RESUME", VALUE_NONE},
    {"attempts", "add", "ATTEMPTS", VALUE_WORD},
    {"retry", "add", "RETRY", VALUE_TIMES},
    {"expires", "add", "EXPIRES", VALUE_TIME},
    {"result", "add", "RESULT", VALUE_TIME},
    {"running", "queue", "RUNNING", VALUE_WORD},
    {"rate", "queue", "RATE", VALUE_WORD},
    {"max", "queue", "MAX", VALUE_WORD},
    {"level", "queue", "LEVEL", VALUE_WORD},
};

static struct program_option options[GIVEN + 1]; /* of these */

struct program program = {
    .name = "hwtctl", .usage = usage, .options = {options, client_options}};

/* Of --at, in ms of Unix time. */
static uint64_t
parse_when(const char **text)
{
	struct tm tm = {.tm_sec = 0};
	char *end = strptime(*text, "%Y-%m-%dT%H:%M:%SZ", &tm);
	int day = tm.tm_mday;
	long long seconds = timegm(&tm); /* the 30th of February is in March */

	if (end == NULL && (*text)[0] == '@' && isdigit((*text)[1]))
		seconds = strtoll(*text + 1, &end, 10);
	else if (tm.tm_mday != day)
		end = NULL;
	if (end == NULL || seconds < 0 || seconds > UINT32_MAX)
		program_fail(STATUS_USAGE,
		    "'%s' is not a time as 2026-11-28T14:00:00Z or @1795874400",
		    *text);
	*text = end;
	return 1000 * (uint64_t)seconds;
}

static void
add_number(struct words *words, uint64_t number)
{
	static char texts[8][24]; /* no command has more */
	static size_t count;

	(void)sprintf(texts[count], "%llu", (unsigned long long)number);
	words_add(words, texts[count++]);
}

static void
add_option(struct words *words, enum value value, const char *text)
{
	const char *rest = text;

	if (value == VALUE_NONE)
		return;
	if (value == VALUE_WORD) {
		words_add(words, text);
		return;
	}
	if (value == VALUE_TIMES) {
		add_number(words, parse_time(&rest) / HWT_MS(1));
		if (*rest++ != ':')
			program_fail(STATUS_USAGE,
			    "'%s' is not FIRST:MOST, as 1s:10m", text);
	}
	add_number(words,
	    value == VALUE_WHEN ? parse_when(&rest)
				: parse_time(&rest) / HWT_MS(1));
	if (*rest != '\0')
		program_fail(STATUS_USAGE, "'%s' is not a time", text);
}

/* All that were given, each by its word and its value. */
static void
add_options(struct words *words, const char *command)
{
	bool in = given[IN].text != NULL, at = given[AT].text != NULL;
	int i;

	if ((in && at) ||
	    (given[PAUSE].text != NULL && given[RESUME].text != NULL) ||
	    (strcmp(command, "reschedule") == 0 && !in && !at))
		program_usage();
	for (i = 0; i < GIVEN; i++) {
		if (given[i].text == NULL)
			continue;
		if (strstr(given[i].commands, command) == NULL)
			program_usage();
		if (given[i].word != NULL)
			words_add(words, given[i].word);
		add_option(words, given[i].value, given[i].text);
	}
}

/* The caller frees the reply. */
static redisReply *
call(const char *queue, const struct words *words)
{
	const char *id = given[ID].text != NULL ? given[ID].text : "";
	redisReply *reply = NULL;
	int error = durable_call(
	    program.durable, queue, words->word, words->count, &reply);

	if (error == 0)
		return reply;
	program_fail(error == -EINVAL ||
		    (reply != NULL && strncmp(reply->str, "ARG", 3) == 0)
		? STATUS_USAGE
		: STATUS_SERVER,
	    "%s%s%s", id, id[0] != '\0' ? ": " : "",
	    reply != NULL ? reply->str : error_text(error));
}

/* An answer has the form of its command's. */
static void
expect(bool right)
{
	if (!right)
		program_fail(STATUS_SERVER, "%s", error_text(-EPROTO));
}

/* time: a number is in ms of Unix time; 0: none. */
static void
print_value(const redisReply *value, bool time)
{
	const time_t seconds = (time_t)(value->integer / 1000);
	char text[32];
	struct tm tm;

	if (value->type != REDIS_REPLY_INTEGER) {
		print_bytes(stdout, value->str, value->len);
	} else if (!time) {
		printf("%lld", value->integer);
	} else if (seconds == 0) {
		(void)putchar('-');
	} else {
		(void)gmtime_r(&seconds, &tm);
		(void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
		printf("%s.%03lldZ", text, value->integer % 1000);
	}
}

/* Of a queue, or of a task, whose first value is its state. */
static int
print_pairs(redisReply *reply)
{
	bool task;
	size_t i;

	expect(reply->elements >= 2);
	task = reply->element[1]->type != REDIS_REPLY_INTEGER;
	for (i = 0; i + 1 < reply->elements; i += 2) {
		const char *name = reply->element[i]->str;

		expect(name != NULL);
		printf("%-20s ", name);
		print_value(reply->element[i + 1],
		    task &&
			(strcmp(name, "due") == 0 ||
			    strcmp(name, "time") == 0));
		(void)putchar('\n');
	}
	freeReplyObject(reply);
	return 0;
}

/*
 * The commands.
 */

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

static int
run_add(struct words *words, int argc, char **argv)
{
	const char *payload = argc > 1 ? argv[1] : "";
	size_t length = strlen(payload);
	static char id[40];
	char *input = NULL;
	redisReply *reply;
	long long state;

	if (strcmp(payload, "-") == 0)
		payload = input = read_input(&length);
	if (given[ID].text == NULL) {
		read_first_line("/proc/sys/kernel/random/uuid", id, sizeof(id));
		given[ID].text = id;
	}
	if (given[IN].text == NULL && given[AT].text == NULL) {
		words_add(words, "IN");
		words_add(words, "0");
	}
	words_add(words, "TASKS");
	words_add(words, given[ID].text);
	words_add_bytes(words, payload, length);
	reply = call(argv[0], words);
	expect(reply->elements == 1);
	state = reply->element[0]->integer;
	freeReplyObject(reply);
	free(input);
	printf("%s\n", given[ID].text);
	if (state != 0)
		(void)fprintf(stderr,
		    "hwtctl: nothing has changed: it is there, and %s\n",
		    state_text(state));
	return state >= HWT_DURABLE_DEAD ? STATUS_NO : 0;
}

static redisReply *
call_with(struct words *words, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		words_add(words, argv[i]);
	return call(argv[0], words);
}

/* A command that says 1 or 0 of each id, which are the last words. */
static int
run_on_ids(struct words *words, int argc, char **argv)
{
	redisReply *reply = call_with(words, argc, argv);
	int i, status = 0, first = argc - (int)reply->elements;

	expect(first > 0);
	for (i = first; i < argc; i++) {
		if (reply->element[i - first]->integer == 1)
			continue;
		(void)fprintf(stderr, "hwtctl: ");
		print_bytes(stderr, argv[i], strlen(argv[i]));
		(void)fprintf(stderr,
		    ": there is no such task, or not in such a state\n");
		status = STATUS_NO;
	}
	freeReplyObject(reply);
	return status;
}

static int
run_show(struct words *words, int argc, char **argv)
{
	redisReply *reply = call_with(words, argc, argv);

	if (reply->type != REDIS_REPLY_ARRAY)
		program_fail(
		    STATUS_NO, "there is no such task, or it is forgotten");
	return print_pairs(reply);
}

/* Id, time, attempts, and the reason of a dead letter. Tasks that change their
 * state meanwhile may be missed, or come twice. */
static int
run_list(struct words *words, int argc, char **argv)
{
	char cursor[CURSOR_SIZE] = "0";
	redisReply *reply;
	size_t i, j;

	words_add(words, argc > 1 ? argv[1] : "dead");
	words_add(words, cursor);
	words_add(words, PAGE);
	do {
		words->word[2].length = strlen(cursor);
		reply = call(argv[0], words);
		expect(reply->elements == 2 && reply->element[0]->str != NULL);
		for (i = 0; i < reply->element[1]->elements; i++) {
			const redisReply *task = reply->element[1]->element[i];

			for (j = 0; j < task->elements && j < 4; j++) {
				if (j > 0)
					(void)putchar('\t');
				print_value(task->element[j], j == 1);
			}
			(void)putchar('\n');
		}
		(void)snprintf(
		    cursor, sizeof(cursor), "%s", reply->element[0]->str);
		freeReplyObject(reply);
	} while (strcmp(cursor, "0") != 0);
	return 0;
}

static int
run_stat(struct words *words, int argc, char **argv)
{
	queue_name *names;
	size_t i, j, count;
	redisReply *stat;
	int error = read_queues(program.durable, &names, &count);

	(void)argc;
	(void)argv;
	if (error != 0)
		program_fail(STATUS_SERVER, "%s", error_text(error));
	for (i = 0; i < 6; i++)
		printf("%10s ", state_text(i + 1));
	printf("queue\n");
	for (i = 0; i < count; i++) {
		stat = call(names[i], words);
		for (j = 1; j < 12 && j < stat->elements; j += 2)
			printf("%10lld ", stat->element[j]->integer);
		printf("%s\n", names[i]);
		freeReplyObject(stat);
	}
	free(names);
	return 0;
}

/* The least and most of words that follow a name. */
static const struct command {
	const char *name, *word;
	int least, most;
	int (*run)(struct words *words, int argc, char **argv);
} commands[] = {
    {"add", "HWT.ADD", 1, 2, run_add},
    {"cancel", "HWT.CANCEL", 2, 1 + HWT_DURABLE_BATCH_MAX, run_on_ids},
    {"reschedule", "HWT.RESCHEDULE", 2, 1 + HWT_DURABLE_BATCH_MAX, run_on_ids},
    {"show", "HWT.GET", 2, 2, run_show},
    {"list", "HWT.LIST", 2, 2, run_list},
    {"dead", "HWT.LIST", 1, 1, run_list},
    {"dead", "HWT.DEAD", 3, 2 + HWT_DURABLE_BATCH_MAX, run_on_ids},
    {"queue", "HWT.QUEUE", 1, 1, run_show},
    {"stat", "HWT.STAT", 0, 0, run_stat},
    {"stat", "HWT.STAT", 1, 1, run_show},
};

static const struct command *
find_command(int argc, char **argv)
{
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		if (argc > commands[i].least && argc <= commands[i].most + 1 &&
		    strcmp(argv[0], commands[i].name) == 0)
			return &commands[i];
	}
	program_usage();
}

int
main(int argc, char **argv)
{
	const struct command *command;
	struct words words = {.count = 0};
	int i, status, first;

	for (i = 0; i < GIVEN; i++) {
		options[i].name = given[i].name;
		options[i].text = &given[i].text;
		options[i].flag = i == PAUSE || i == RESUME;
	}
	first = program_parse(argc, argv);
	argc -= first, argv += first;
	command = find_command(argc, argv);
	words_add(&words, command->word);
	add_options(&words, command->name);
	program.durable = program_open();
	status = command->run(&words, argc - 1, argv + 1);
	(void)hwt_durable_close(program.durable);
	if (fflush(stdout) != 0)
		program_fail(
		    STATUS_SERVER, "standard output: %s", strerror(errno));
	return status;
}
