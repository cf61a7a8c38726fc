/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process with a handle, for client.py: commands come by standard input, a
 * line each; each is answered by a line. What a worker does is a line, too:
 *
 *   run QUEUE ID ATTEMPT FENCE PAYLOAD    when a callback begins
 *
 * The payload says what a callback does: words with blanks between.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "modules/durable/hwt_durable.h"

#define WORDS_MAX 12
#define MS_NS UINT64_C(1000000)

static struct hwt_durable *durable;
static struct hwt_durable_worker *worker;
/* Of attempts that were left open, by their ids. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	char id[HWT_DURABLE_ID_MAX + 1];
	struct hwt_durable_token token;
} open_attempt[1024];
static unsigned opened;

static void
say(const char *what, int error)
{
	const char *name = strerrorname_np(-error);

	if (error < 0 && name != NULL)
		printf("%s -%s\n", what, name);
	else
		printf("%s %d\n", what, error);
	(void)fflush(stdout);
}

static unsigned
split(char *line, char *word[WORDS_MAX])
{
	unsigned count = 0;
	char *rest = line;

	while (
	    count < WORDS_MAX && (word[count] = strsep(&rest, " \n")) != NULL)
		count += word[count][0] != '\0';
	while (count < WORDS_MAX)
		word[count++] = NULL;
	return count;
}

static uint64_t
number(const char *word)
{
	return word != NULL ? strtoull(word, NULL, 10) : 0;
}

static uint64_t
ms(const char *word)
{
	return number(word) * MS_NS;
}

static void
log_nothing(void *ctx, int level, const char *message)
{
	(void)ctx;
	(void)level;
	(void)fprintf(stderr, "client: %s\n", message);
}

/* open SERVERS TIMEOUT-MS REPLICAS PASSWORD-FILE USER */
static void
do_open(char **word)
{
	static const struct hwt_log log = {log_nothing, NULL};
	const struct hwt_durable_options options = {
	    .servers = word[1],
	    .timeout_ns = ms(word[2]),
	    .replicas = (uint32_t)number(word[3]),
	    .password_file = word[4],
	    .user = word[5],
	    .log = &log,
	};

	say("open", hwt_durable_open(&durable, &options));
}

/* add QUEUE ID DELAY-MS PAYLOAD ATTEMPTS RETRY-MS EXPIRES-MS RESULT-MS */
static void
do_add(char **word, const char *payload)
{
	const struct hwt_durable_task task = {
	    .id = word[2],
	    .id_length = word[2] != NULL ? strlen(word[2]) : 0,
	    .queue = word[1],
	    .delay_ns = ms(word[3]),
	    .payload = payload,
	    .payload_length = strlen(payload),
	    .max_attempts = (uint32_t)number(word[5]),
	    .retry_first_ns = ms(word[6]),
	    .retry_most_ns = ms(word[6]),
	    .expires_ns = ms(word[7]),
	    .result_ns = ms(word[8]),
	};
	int result = 0;
	int error = hwt_durable_add(durable, 1, &task, &result);

	say("add", error != 0 ? error : result);
}

/* Many threads that add a task a call. */
struct adder {
	pthread_t thread;
	const char *queue, *prefix, *payload;
	uint64_t delay_ns;
	unsigned first, count, threads;
	unsigned stored, known, failed, uncertain;
};

static void *
add_some(void *arg)
{
	struct adder *adder = arg;
	char id[HWT_DURABLE_ID_MAX + 1];
	unsigned i;

	for (i = adder->first; i < adder->count; i += adder->threads) {
		struct hwt_durable_task task = {
		    .id = id,
		    .id_length = (size_t)snprintf(
			id, sizeof(id), "%s%u", adder->prefix, i),
		    .queue = adder->queue,
		    .delay_ns = adder->delay_ns,
		    .payload = adder->payload,
		    .payload_length = strlen(adder->payload),
		};
		int result = 0;
		int error = hwt_durable_add(durable, 1, &task, &result);

		adder->stored += error == 0 && result == 0;
		adder->known += error == 0 && result > 0;
		adder->uncertain += error == -ETIMEDOUT;
		adder->failed += error != 0 && error != -ETIMEDOUT;
	}
	return NULL;
}

/* addmany QUEUE PREFIX COUNT THREADS DELAY-MS PAYLOAD */
static void
do_add_many(char **word, const char *payload)
{
	static struct adder adder[64];
	unsigned threads = (unsigned)number(word[4]), i;
	struct adder sum = {.count = 0};

	for (i = 0; i < threads; i++) {
		adder[i] = (struct adder){.queue = word[1],
		    .prefix = word[2],
		    .payload = payload,
		    .delay_ns = ms(word[5]),
		    .first = i,
		    .count = (unsigned)number(word[3]),
		    .threads = threads};
		if (pthread_create(
			&adder[i].thread, NULL, add_some, &adder[i]) != 0)
			abort();
	}
	for (i = 0; i < threads; i++) {
		(void)pthread_join(adder[i].thread, NULL);
		sum.stored += adder[i].stored;
		sum.known += adder[i].known;
		sum.uncertain += adder[i].uncertain;
		sum.failed += adder[i].failed;
	}
	printf("addmany %u %u %u %u\n", sum.stored, sum.known, sum.uncertain,
	    sum.failed);
	(void)fflush(stdout);
}

/* addbatch QUEUE PREFIX COUNT BAD: in one call; element BAD is invalid. Two
 * queues, three delays. */
static void
do_add_batch(char **word)
{
	static struct hwt_durable_task task[HWT_DURABLE_BATCH_MAX];
	static char id[HWT_DURABLE_BATCH_MAX][32];
	static int result[HWT_DURABLE_BATCH_MAX];
	unsigned count = (unsigned)number(word[3]), i, stored = 0;
	unsigned bad = word[4] != NULL ? (unsigned)number(word[4]) : UINT32_MAX;
	char other[80];
	int error;

	(void)snprintf(other, sizeof(other), "%s.2", word[1]);
	for (i = 0; i < count; i++)
		task[i] = (struct hwt_durable_task){.id = id[i],
		    .id_length = (size_t)snprintf(
			id[i], sizeof(id[i]), "%s%u", word[2], i),
		    .queue = i % 2 ? other : word[1],
		    .delay_ns = i % 3 * MS_NS + (i == bad ? HWT_NEVER / 2 : 0)};
	error = hwt_durable_add(durable, count, task, result);
	for (i = 0; i < count; i++)
		stored += result[i] == 0;
	printf("addbatch %s %u %d\n",
	    error == 0 ? "0" : strerrorname_np(-error), stored,
	    bad < count ? result[bad] : 0);
	(void)fflush(stdout);
}

static size_t
length(const char *word)
{
	return word != NULL ? strlen(word) : 0;
}

static void
do_get(char **word)
{
	struct hwt_durable_info info;
	char payload[65536];
	int error = hwt_durable_get(durable, word[1], word[2], length(word[2]),
	    &info, payload, sizeof(payload));

	if (error != 0) {
		say("get", error);
		return;
	}
	printf("get 0 %d %u %u %zu %.*s|%.*s\n", info.state, info.attempt,
	    info.max_attempts, info.payload_length, (int)info.payload_length,
	    payload, (int)info.reason_length, info.reason);
	(void)fflush(stdout);
}

static void
do_stat(char **word)
{
	struct hwt_durable_stats s;
	int error = hwt_durable_read_stats(durable, word[1], &s);

	if (error != 0) {
		say("stat", error);
		return;
	}
#define N(field) (unsigned long long)s.field
	printf("stat 0 waiting=%llu due=%llu running=%llu done=%llu dead=%llu "
	       "cancelled=%llu added=%llu begun=%llu retried=%llu "
	       "leases_ended=%llu\n",
	    N(waiting), N(due), N(running), N(done), N(dead), N(cancelled),
	    N(added_total), N(begun_total), N(retried_total),
	    N(leases_ended_total));
#undef N
	(void)fflush(stdout);
}

/* done | retry MS | fail WHY | sleep MS ... | later | now: later, but finished
 * in the callback */
static int
act(const struct hwt_durable_delivery *delivery, char **word)
{
	if (word[0] != NULL && strcmp(word[0], "sleep") == 0) {
		(void)usleep((useconds_t)(number(word[1]) * 1000));
		word += 2;
	}
	if (word[0] == NULL || strcmp(word[0], "done") == 0)
		return 0;
	if (strcmp(word[0], "retry") == 0) {
		if (word[1] != NULL)
			*delivery->retry_delay_ns = ms(word[1]);
		return delivery->attempt < 3 ? HWT_DURABLE_RETRY : 0;
	}
	if (strcmp(word[0], "fail") == 0) {
		(void)snprintf(delivery->reason, HWT_DURABLE_REASON_MAX + 1,
		    "%s", word[1] != NULL ? word[1] : "");
		return HWT_DURABLE_FAIL;
	}
	if (strcmp(word[0], "now") == 0) {
		if (hwt_durable_finish(delivery->token, 0, 0, NULL) != 0 ||
		    hwt_durable_finish(delivery->token, 0, 0, NULL) != -ESTALE)
			abort();
		return HWT_DURABLE_FAIL;
	}
	(void)pthread_mutex_lock(&open_lock);
	(void)snprintf(open_attempt[opened].id, sizeof(open_attempt[0].id),
	    "%s", delivery->id);
	open_attempt[opened].token = delivery->token;
	opened = (opened + 1) % 1024;
	(void)pthread_mutex_unlock(&open_lock);
	return HWT_DURABLE_LATER;
}

static int
call_back(void *ctx, const struct hwt_durable_delivery *delivery)
{
	char text[1024];
	char *word[WORDS_MAX];

	(void)ctx;
	(void)snprintf(text, sizeof(text), "%.*s",
	    (int)delivery->payload_length, (const char *)delivery->payload);
	printf("run %s %s %u %llu %s\n", delivery->queue, delivery->id,
	    delivery->attempt, (unsigned long long)delivery->fence, text);
	(void)fflush(stdout);
	(void)split(text, word);
	return act(delivery, word);
}

/* work QUEUES THREADS VISIBILITY-MS OUTSTANDING */
static void
do_work(char **word)
{
	const struct hwt_durable_worker_options options = {
	    .queue = word[1],
	    .callback = call_back,
	    .threads = (uint32_t)number(word[2]),
	    .visibility_ns = ms(word[3]),
	    .outstanding_max = number(word[4]),
	};

	say("work", hwt_durable_worker_start(&worker, durable, &options));
}

/* finish ID OUTCOME DELAY-MS REASON */
static void
do_finish(char **word)
{
	struct hwt_durable_token token = {NULL, 0};
	unsigned i;

	(void)pthread_mutex_lock(&open_lock);
	for (i = 0; i < 1024; i++) {
		if (strcmp(open_attempt[i].id, word[1]) == 0)
			token = open_attempt[i].token;
	}
	(void)pthread_mutex_unlock(&open_lock);
	say("finish",
	    hwt_durable_finish(
		token, (int)number(word[2]), ms(word[3]), word[4]));
}

static void
do_stop(char **word)
{
	int error = hwt_durable_worker_stop(worker, ms(word[1]));

	if (error == 0)
		worker = NULL;
	say("stop", error);
}

static int
fork_check(void)
{
	const struct hwt_durable_task task = {
	    .id = "f", .id_length = 1, .queue = "q"};
	const struct hwt_durable_worker_options options = {
	    .queue = "q", .callback = call_back};
	struct hwt_durable_token token = {worker, 1};
	struct hwt_durable_worker *other;
	struct hwt_durable_stats stats;
	struct hwt_durable_info info;

	return hwt_durable_add(durable, 1, &task, NULL) == -EOWNERDEAD &&
	    hwt_durable_cancel(durable, "q", "f", 1) == -EOWNERDEAD &&
	    hwt_durable_reschedule(durable, "q", "f", 1, 0, 0) == -EOWNERDEAD &&
	    hwt_durable_get(durable, "q", "f", 1, &info, NULL, 0) ==
	    -EOWNERDEAD &&
	    hwt_durable_read_stats(durable, "q", &stats) == -EOWNERDEAD &&
	    hwt_durable_worker_start(&other, durable, &options) ==
	    -EOWNERDEAD &&
	    (worker == NULL ||
		(hwt_durable_finish(token, 0, 0, NULL) == -EOWNERDEAD &&
		    hwt_durable_worker_stop(worker, 0) == -EOWNERDEAD)) &&
	    hwt_durable_close(durable) == -EOWNERDEAD;
}

static void
do_fork(void)
{
	int status = -1;
	pid_t child = fork();

	if (child == 0)
		_exit(fork_check() ? 0 : 1);
	(void)waitpid(child, &status, 0);
	say("fork", status);
}

static void
run(char **word, const char *payload)
{
	const char *what = word[0];

	if (strcmp(what, "open") == 0)
		do_open(word);
	else if (strcmp(what, "add") == 0)
		do_add(word, payload);
	else if (strcmp(what, "addmany") == 0)
		do_add_many(word, payload);
	else if (strcmp(what, "addbatch") == 0)
		do_add_batch(word);
	else if (strcmp(what, "get") == 0)
		do_get(word);
	else if (strcmp(what, "stat") == 0)
		do_stat(word);
	else if (strcmp(what, "work") == 0)
		do_work(word);
	else if (strcmp(what, "finish") == 0)
		do_finish(word);
	else if (strcmp(what, "fork") == 0)
		do_fork();
	else if (strcmp(what, "cancel") == 0)
		say(what,
		    hwt_durable_cancel(
			durable, word[1], word[2], length(word[2])));
	else if (strcmp(what, "reschedule") == 0)
		say(what,
		    hwt_durable_reschedule(durable, word[1], word[2],
			length(word[2]), ms(word[3]), 0));
	else if (strcmp(what, "stop") == 0)
		do_stop(word);
	else if (strcmp(what, "close") == 0)
		say(what, hwt_durable_close(durable));
	else
		say(what, -ENOSYS);
}

int
main(void)
{
	char line[131072], payload[131072];
	char *word[WORDS_MAX];
	char *comma;
	bool many;

	/* In an add, the payload's own blanks are commas. */
	while (fgets(line, sizeof(line), stdin) != NULL) {
		(void)split(line, word);
		if (word[0] == NULL)
			continue;
		many = strcmp(word[0], "addmany") == 0;
		(void)snprintf(payload, sizeof(payload), "%s",
		    word[many ? 6 : 4] != NULL ? word[many ? 6 : 4] : "");
		while ((comma = strchr(payload, ',')) != NULL)
			*comma = ' ';
		run(word, payload);
	}
	return 0;
}
