/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "hwtd-work.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "modules/durable/durable.h"
#include "options.h"

#define WORKS_MAX 64 /* queues; of more, those that come first */
#define PAUSE_MS 1000 /* until it connects again */
#define DENIED_MS 60000 /* the same, where its user has no right to listen */
#define CONNECT_NS HWT_SEC(2)
/* After so long without a text it connects again, as the engine may be gone
 * without a word. */
#define SILENCE_MS 30000

/* Elements of a text's histogram, from FIRST: what is before it counts as the
 * first one, what is behind the last one as that. */
#define FIRST 17
#define LAST 43
#define ELEMENTS (LAST - FIRST + 1)

struct work {
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	uint64_t done, retried, failed;
	uint64_t late[ELEMENTS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* over works */
static struct work works[WORKS_MAX];
static size_t work_count;

static struct hwt_durable *durable; /* constant, as the rest */
static pthread_t thread;
static int stop_fd = -1;

/* NULL: there are too many. */
static struct work *
work_find(const char *queue)
{
	struct work *work = works;

	while (work < works + work_count && strcmp(work->queue, queue) != 0)
		work++;
	if (work == works + WORKS_MAX)
		return NULL;
	if (work == works + work_count) {
		(void)snprintf(work->queue, sizeof(work->queue), "%s", queue);
		work_count++;
	}
	return work;
}

/* Digits after a mark, of which text is moved behind. */
static bool
number_read(const char **text, char mark, uint64_t *number)
{
	char *end;

	if ((*text)[0] != mark || (*text)[1] < '0' || (*text)[1] > '9')
		return false;
	*number = strtoull(*text + 1, &end, 10);
	*text = end;
	return true;
}

/* QUEUE DONE RETRIED FAILED K:N...; whoever may publish has written it. */
static void
work_add(const char *text)
{
	char queue[HWT_DURABLE_QUEUE_MAX + 1];
	uint64_t done, retried, failed, element, count;
	struct work *work;
	size_t length = strcspn(text, " ");

	if (length > HWT_DURABLE_QUEUE_MAX)
		return;
	memcpy(queue, text, length);
	queue[length] = '\0';
	text += length;
	if (!name_is_valid(queue, HWT_DURABLE_QUEUE_MAX) ||
	    !number_read(&text, ' ', &done) ||
	    !number_read(&text, ' ', &retried) ||
	    !number_read(&text, ' ', &failed))
		return;
	work = work_find(queue);
	if (work == NULL)
		return;
	work->done += done;
	work->retried += retried;
	work->failed += failed;
	while (number_read(&text, ' ', &element) &&
	    number_read(&text, ':', &count)) {
		element = element < FIRST ? FIRST : element;
		element = element > LAST ? LAST : element;
		work->late[element - FIRST] += count;
	}
}

/* Until there is an error or a long silence, or it is to end. */
static void
listen_to(struct engine_subscription *subscription)
{
	struct pollfd polled[] = {{.fd = stop_fd, .events = POLLIN},
	    {.fd = engine_subscription_fd(subscription), .events = POLLIN}};
	const char *text;
	int result, ready;

	do {
		result = engine_subscription_text(subscription, &text);
		if (result == 1) {
			(void)pthread_mutex_lock(&lock);
			work_add(text);
			(void)pthread_mutex_unlock(&lock);
		}
		ready = poll(polled, 2, result == 1 ? 0 : SILENCE_MS);
	} while (result >= 0 && (result == 1 || ready != 0) &&
	    (polled[0].revents & POLLIN) == 0);
}

/* The error of the attempt to listen, or 0, after that. */
static int
work_listen(void)
{
	const struct engine_wait wait = {
	    .timeout_ns = CONNECT_NS, .stop_fd = stop_fd};
	struct engine_subscription *subscription;
	int error = engine_subscription_open(
	    &subscription, durable_engine(durable), "stats", &wait);

	if (error != 0)
		return error;
	listen_to(subscription);
	engine_subscription_close(subscription);
	return 0;
}

static void *
work_run(void *arg)
{
	struct pollfd polled = {.fd = stop_fd, .events = POLLIN};
	bool denied = false, was_denied;

	(void)arg;
	do {
		was_denied = denied;
		denied = work_listen() == -EACCES;
		if (denied && !was_denied)
			complain("what workers publish on %s:stats is not "
				 "heard: %s",
			    engine_space(durable_engine(durable)),
			    explain(-EACCES));
	} while (poll(&polled, 1, denied ? DENIED_MS : PAUSE_MS) == 0);
	return NULL;
}

int
work_start(struct hwt_durable *of)
{
	int error;

	durable = of;
	stop_fd = eventfd(0, EFD_CLOEXEC);
	if (stop_fd < 0)
		return -errno;
	error = pthread_create(&thread, NULL, work_run, NULL);
	if (error == 0)
		return 0;
	(void)close(stop_fd);
	stop_fd = -1;
	return -error;
}

void
work_stop(void)
{
	if (stop_fd < 0)
		return;
	(void)eventfd_write(stop_fd, 1);
	(void)pthread_join(thread, NULL);
	(void)close(stop_fd);
	stop_fd = -1;
}

static void
work_write_one(FILE *file, const struct work *work)
{
	size_t i;

	(void)fprintf(file,
	    "{\"queue\":\"%s\",\"done\":%" PRIu64 ",\"retried\":%" PRIu64
	    ",\"failed\":%" PRIu64 ",\"lateness\":[",
	    work->queue, work->done, work->retried, work->failed);
	for (i = 0; i < ELEMENTS; i++)
		(void)fprintf(
		    file, "%s%" PRIu64, i > 0 ? "," : "", work->late[i]);
	(void)fputs("]}", file);
}

void
work_write(FILE *file)
{
	size_t i;

	(void)fputc('[', file);
	(void)pthread_mutex_lock(&lock);
	for (i = 0; i < work_count; i++) {
		if (i > 0)
			(void)fputc(',', file);
		work_write_one(file, &works[i]);
	}
	(void)pthread_mutex_unlock(&lock);
	(void)fputc(']', file);
}

/* Prometheus. What workers serve themselves has other names: who asks both
 * counts nothing twice. */

static const struct {
	const char *name, *help;
	size_t offset;
} outcomes[] = {
    {"done", "Attempts that are done, as workers have published it.",
	offsetof(struct work, done)},
    {"retried", "Attempts that are to be made again, the same.",
	offsetof(struct work, retried)},
    {"failed", "Attempts that have failed for good, the same.",
	offsetof(struct work, failed)},
};

#define OUTCOMES (sizeof(outcomes) / sizeof(outcomes[0]))

static void
outcome_prometheus(FILE *file, const char *space, size_t outcome)
{
	const char *name = outcomes[outcome].name;
	uint64_t value;
	size_t i;

	(void)fprintf(file,
	    "# HELP hwt_durable_queue_%s_total %s\n"
	    "# TYPE hwt_durable_queue_%s_total counter\n",
	    name, outcomes[outcome].help, name);
	for (i = 0; i < work_count; i++) {
		memcpy(&value,
		    (const char *)&works[i] + outcomes[outcome].offset,
		    sizeof(value));
		(void)fprintf(file,
		    "hwt_durable_queue_%s_total{space=\"%s\",queue=\"%s\"} "
		    "%" PRIu64 "\n",
		    name, space, works[i].queue, value);
	}
}

/* Without a sum, which is not published. */
static void
lateness_prometheus(FILE *file, const char *space, const struct work *work)
{
	static const char name[] = "hwt_durable_queue_lateness_seconds";
	uint64_t count = 0;
	int k;

	for (k = FIRST; k < LAST; k++) {
		count += work->late[k - FIRST];
		(void)fprintf(file,
		    "%s_bucket{space=\"%s\",queue=\"%s\",le=\"%.15g\"} "
		    "%" PRIu64 "\n",
		    name, space, work->queue, (double)(UINT64_C(2) << k) / 1e9,
		    count);
	}
	count += work->late[LAST - FIRST];
	(void)fprintf(file,
	    "%s_bucket{space=\"%s\",queue=\"%s\",le=\"+Inf\"} %" PRIu64 "\n"
	    "%s_count{space=\"%s\",queue=\"%s\"} %" PRIu64 "\n",
	    name, space, work->queue, count, name, space, work->queue, count);
}

void
work_prometheus(FILE *file, const char *space)
{
	size_t i;

	(void)pthread_mutex_lock(&lock);
	for (i = 0; i < OUTCOMES; i++)
		outcome_prometheus(file, space, i);
	(void)fputs("# HELP hwt_durable_queue_lateness_seconds From when a "
		    "task was due to the begin of its attempt, as workers have "
		    "published it.\n"
		    "# TYPE hwt_durable_queue_lateness_seconds histogram\n",
	    file);
	for (i = 0; i < work_count; i++)
		lateness_prometheus(file, space, &works[i]);
	(void)pthread_mutex_unlock(&lock);
}
