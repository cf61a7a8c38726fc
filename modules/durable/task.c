/* SPDX-License-Identifier: Apache-2.0 */
/* Checks, records, numbers: see durable.h. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "durable.h"

/* Of a record: see DESIGN. */
#define RECORD_FORMAT 2
#define RECORD_FORMAT_OPTIONS 3
#define RECORD_HEAD 56
#define RECORD_OPTIONS 29

#define TASK_FLAGS                                                       \
	(HWT_DURABLE_AT | HWT_DURABLE_REPLACE | HWT_DURABLE_EXPIRES_AT | \
	    PRIORITY_FLAGS)

uint64_t
whole_ms(uint64_t ns)
{
	return ns / NS_PER_MS + (ns % NS_PER_MS != 0);
}

bool
name_is_valid(const char *name, size_t max)
{
	size_t length;

	for (length = 0; name[length] != 0; length++) {
		if (length == max ||
		    strchr("abcdefghijklmnopqrstuvwxyz"
			   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-",
			name[length]) == NULL)
			return false;
	}
	return length > 0;
}

bool
words_are_zero(const uint64_t *word, size_t count)
{
	while (count-- > 0) {
		if (word[count] != 0)
			return false;
	}
	return true;
}

bool
time_is_valid(uint64_t time_ns, uint32_t flags, uint64_t now_ns)
{
	if (flags & HWT_DURABLE_AT)
		return time_ns <= now_ns + HWT_DURABLE_DELAY_MAX;
	return time_ns <= HWT_DURABLE_DELAY_MAX;
}

/* It can begin before it expires, as far as that is known without a clock. */
static bool
expires_is_valid(const struct hwt_durable_task *task, uint64_t now_ns)
{
	bool at = task->flags & HWT_DURABLE_EXPIRES_AT;

	if (task->expires_ns == 0)
		return !at;
	return time_is_valid(
		   task->expires_ns, at ? HWT_DURABLE_AT : 0, now_ns) &&
	    (at != ((task->flags & HWT_DURABLE_AT) != 0) ||
		task->expires_ns >= task->delay_ns);
}

void
task_retries(const struct hwt_durable_task *task, struct task_retries *retries)
{
	retries->first_ms =
	    task->retry_first_ns != 0 ? whole_ms(task->retry_first_ns) : 1000;
	retries->most_ms =
	    task->retry_most_ns != 0 ? whole_ms(task->retry_most_ns) : 600000;
	if (task->retry_most_ns == 0 && retries->most_ms < retries->first_ms)
		retries->most_ms = retries->first_ms;
	retries->thousandths = task->retry_factor != 0
	    ? (uint64_t)(task->retry_factor * 1000 + 0.5)
	    : 2000;
}

bool
task_has_retries(const struct hwt_durable_task *task)
{
	return task->retry_first_ns != 0 || task->retry_most_ns != 0 ||
	    task->retry_factor != 0;
}

static bool
retries_are_valid(const struct hwt_durable_task *task)
{
	struct task_retries retries;

	/* Also if it is no number. */
	if (task->retry_factor != 0 &&
	    !(task->retry_factor >= 1 && task->retry_factor <= 1000))
		return false;
	task_retries(task, &retries);
	return task->retry_first_ns <= HWT_DURABLE_DELAY_MAX &&
	    task->retry_most_ns <= HWT_DURABLE_DELAY_MAX &&
	    retries.first_ms <= retries.most_ms;
}

bool
task_is_valid(const struct hwt_durable_task *task, uint64_t now_ns)
{
	return task->id != NULL && task->id_length >= 1 &&
	    task->id_length <= HWT_DURABLE_ID_MAX && task->queue != NULL &&
	    name_is_valid(task->queue, HWT_DURABLE_QUEUE_MAX) &&
	    (task->flags & ~TASK_FLAGS) == 0 &&
	    (task->flags & PRIORITY_FLAGS) != PRIORITY_FLAGS &&
	    time_is_valid(task->delay_ns, task->flags, now_ns) &&
	    expires_is_valid(task, now_ns) && retries_are_valid(task) &&
	    task->max_attempts <= HWT_DURABLE_ATTEMPTS_MAX &&
	    task->payload_length <= HWT_DURABLE_PAYLOAD_MAX &&
	    (task->payload != NULL || task->payload_length == 0) &&
	    RESERVED_IS_ZERO(task);
}

static const uint32_t priorities[PRIORITY_MAX + 1] = {
    0, HWT_DURABLE_HIGH, HWT_DURABLE_LOW};

uint32_t
priority_flags(uint64_t priority)
{
	return priorities[priority];
}

uint64_t
priority_of(uint32_t flags)
{
	uint64_t priority = PRIORITY_MAX;

	while (priority > 0 && (flags & priorities[priority]) == 0)
		priority--;
	return priority;
}

uint64_t
id_hash(const char *id, size_t id_length)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	size_t i;

	for (i = 0; i < id_length; i++) {
		hash ^= (unsigned char)id[i];
		hash *= UINT64_C(0x100000001b3);
	}
	return hash;
}

const char *
error_text(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
	    {-EACCES, "user or password is wrong, or has no right to this"},
	    {-EAGAIN, "the shard is paused, or the engine is not ready"},
	    {-EALREADY, "it has ended"},
	    {-ECANCELED, "given up"},
	    {-ECONNREFUSED, "the engine cannot be reached"},
	    {-EEXIST, "the space exists, and has another shape"},
	    {-EINPROGRESS, "it is running"},
	    {-EINVAL, "an argument is outside its range"},
	    {-ENOENT, "no such task"},
	    {-ENOMEM, "no memory"},
	    {-ENOSPC,
		"the engine is out of memory, or cannot write to its disk"},
	    {-EOPNOTSUPP,
		"this engine is not fit: a replica, too old, evicting, or its "
		"persistence is below the level"},
	    {-EPROTO, "the engine gave an answer that makes no sense"},
	    {-ESTALE, "the space, or a part of it, is gone"},
	    {-ETIME,
		"the clocks of this machine and the engine differ too much"},
	    {-ETIMEDOUT, "no answer in time: it may have happened or not"},
	};
	size_t i;

	for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (texts[i].error == error)
			return texts[i].text;
	}
	return NULL;
}

const char *
error_says(int error)
{
	const char *text = error_text(error);

	return text != NULL ? text : "an unexpected error";
}

/* Little endian, as struct.pack writes it. */
static uint64_t
field(const char *record, size_t offset, size_t bytes)
{
	uint64_t value = 0;

	while (bytes-- > 0)
		value = value << 8 | (unsigned char)record[offset + bytes];
	return value;
}

void
record_read(struct hwt_durable_info *info, const char *record, size_t length,
    const char **payload)
{
	uint64_t state, queue_length, options, priority;
	const char *end;

	memset(info, 0, sizeof(*info));
	info->state = HWT_DURABLE_QUARANTINED;
	*payload = record;
	if (length < RECORD_HEAD ||
	    (record[0] != RECORD_FORMAT && record[0] != RECORD_FORMAT_OPTIONS))
		return;
	options = record[0] == RECORD_FORMAT_OPTIONS ? RECORD_OPTIONS : 0;
	state = field(record, 1, 1);
	queue_length = field(record, 6, 2);
	if (state < HWT_DURABLE_PENDING || state > HWT_DURABLE_QUARANTINED ||
	    queue_length > HWT_DURABLE_QUEUE_MAX ||
	    queue_length + options > length - RECORD_HEAD)
		return;
	info->state = (enum hwt_durable_state)state;
	info->attempts = (uint32_t)field(record, 2, 2);
	info->max_attempts = (uint32_t)field(record, 4, 2);
	info->generation = (uint32_t)field(record, 8, 4);
	info->due_unix_ns = field(record, 16, 8) * NS_PER_MS;
	info->changed_unix_ns = field(record, 48, 8) * NS_PER_MS;
	memcpy(info->queue, record + RECORD_HEAD, queue_length);
	end = record + RECORD_HEAD + queue_length;
	if (options != 0) {
		info->expires_unix_ns = field(end, 0, 8) * NS_PER_MS;
		info->retry_first_ns = field(end, 8, 8) * NS_PER_MS;
		info->retry_most_ns = field(end, 16, 8) * NS_PER_MS;
		info->retry_factor = (double)field(end, 24, 4) / 1000;
		priority = field(end, 28, 1);
		if (priority <= PRIORITY_MAX)
			info->flags = priority_flags(priority);
	}
	*payload = end + options;
	info->payload_length = length - RECORD_HEAD - queue_length - options;
}

struct engine_argument
argument_number(struct number *to, uint64_t number)
{
	int length = snprintf(
	    to->text, sizeof(to->text), "%llu", (unsigned long long)number);

	return (struct engine_argument){to->text, (size_t)length};
}

struct engine_argument
argument_text(const char *text)
{
	return (struct engine_argument){text, strlen(text)};
}

bool
reply_number(const struct redisReply *reply, uint64_t *number)
{
	char *end;

	if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0) {
		*number = (uint64_t)reply->integer;
		return true;
	}
	if (reply->type != REDIS_REPLY_STRING || !isdigit(reply->str[0]))
		return false;
	errno = 0;
	*number = strtoull(reply->str, &end, 10);
	return *end == 0 && errno == 0;
}

uint64_t
random_number(void)
{
	struct timespec now = {0};
	uint64_t number;

	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number))
		return number;
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return ((uint64_t)now.tv_nsec << 20 ^ (uint64_t)getpid()) *
	    UINT64_C(0x9e3779b97f4a7c15);
}

void
name_make(char name[NAME_MAX_LENGTH + 1])
{
	char host[33] = "";
	size_t i;

	(void)gethostname(host, sizeof(host) - 1);
	for (i = 0; host[i] != 0; i++) {
		if (!isalnum((unsigned char)host[i]))
			host[i] = '-';
	}
	(void)snprintf(name, NAME_MAX_LENGTH + 1, "%s.%ld.%08x", host,
	    (long)getpid(), (unsigned)(random_number() >> 32));
}
