/* SPDX-License-Identifier: Apache-2.0 */
#include "test/model/cover.h"

#include "hwt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int rc;
} answers[] = {
    {"0", 0},
    {"EINVAL", -EINVAL},
    {"ENOENT", -ENOENT},
    {"EINPROGRESS", -EINPROGRESS},
    {"EDEADLK", -EDEADLK},
    {"ESHUTDOWN", -ESHUTDOWN},
    {"ENOBUFS", -ENOBUFS},
    {"EBUSY", -EBUSY},
    {"EPERM", -EPERM},
    {"EAGAIN", -EAGAIN},
    {"ENOMEM", -ENOMEM},
    {"EIO", -EIO},
    {"ENOSPC", -ENOSPC},
    {"EMFILE", -EMFILE},
    {"ENFILE", -ENFILE},
    {"ETIMEDOUT", -ETIMEDOUT},
    {"ECANCELED", -ECANCELED},
    {"PENDING", HWT_STATE_PENDING},
    {"HANDED_OVER", HWT_STATE_HANDED_OVER},
    {"RUNNING", HWT_STATE_RUNNING},
};

#define ANSWERS (sizeof(answers) / sizeof(answers[0]))

static const struct {
	const char *name, *required, *failing;
} calls[] = {
#define X(name, required, failing) {#name, " " required " ", " " failing " "},
    CALLS(X)
#undef X
};

static uint64_t counts[CALL_COUNT][ANSWERS + 1];

/* The linker's names for the begin and the end of the section. */
extern struct cover_event __start_cover_events[], __stop_cover_events[];

static size_t
answer_of(int rc)
{
	size_t i;

	for (i = 0; i < ANSWERS && answers[i].rc != rc; i++)
		continue;
	return i;
}

const char *
cover_rc_name(int rc)
{
	size_t i = answer_of(rc);

	return i < ANSWERS ? answers[i].name : "another error";
}

void
cover_call(enum call call, int rc)
{
	counts[call][answer_of(rc)]++;
}

uint64_t
cover_calls(void)
{
	uint64_t sum = 0;
	size_t call, i;

	for (call = 0; call < CALL_COUNT; call++) {
		for (i = 0; i <= ANSWERS; i++)
			sum += counts[call][i];
	}
	return sum;
}

static bool
lists(const char *list, int rc)
{
	char word[32];

	(void)snprintf(word, sizeof(word), " %s ", cover_rc_name(rc));
	return strstr(list, word) != NULL;
}

bool
cover_may_fail(enum call call, int rc)
{
	return lists(calls[call].failing, rc);
}

static bool
report_call(size_t call, bool quiet)
{
	bool complete = true;
	size_t i;

	if (!quiet)
		printf("  %-20s", calls[call].name);
	for (i = 0; i < ANSWERS; i++) {
		uint64_t count = counts[call][i];

		if (count > 0 && !quiet)
			printf(" %s %" PRIu64, answers[i].name, count);
		if (count > 0 || !lists(calls[call].required, answers[i].rc))
			continue;
		complete = false;
		printf(
		    " %s never answered %s", calls[call].name, answers[i].name);
	}
	if (!quiet || !complete)
		printf("\n");
	return complete;
}

bool
cover_report(bool quiet)
{
	const struct cover_event *event;
	bool complete = true;
	size_t i;

	for (i = 0; i < CALL_COUNT; i++)
		complete = report_call(i, quiet) && complete;
	for (event = __start_cover_events; event < __stop_cover_events;
	     event++) {
		if (!quiet)
			printf(
			    "  %10" PRIu64 " %s\n", event->count, event->text);
		if (event->count == 0)
			printf("  never: %s\n", event->text);
		complete = complete && event->count > 0;
	}
	return complete;
}
