/* SPDX-License-Identifier: Apache-2.0 */
#include "test/random/cover.h"

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
    {"PENDING", HWT_STATE_PENDING},
    {"HANDED_OVER", HWT_STATE_HANDED_OVER},
    {"RUNNING", HWT_STATE_RUNNING},
};

#define ANSWERS (sizeof(answers) / sizeof(answers[0]))

static const struct {
	const char *name, *required;
} calls[] = {
#define X(name, answers) {#name, " " answers " "},
    CALLS(X)
#undef X
};

static const char *const events[] = {
#define X(name, text) text,
    EVENTS(X)
#undef X
};

static uint64_t call_counts[CALL_COUNT][ANSWERS + 1];
static uint64_t event_counts[EVENT_COUNT];

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
	call_counts[call][answer_of(rc)]++;
}

void
cover_event(enum event event)
{
	event_counts[event]++;
}

uint64_t
cover_calls(void)
{
	uint64_t sum = 0;
	size_t call, i;

	for (call = 0; call < CALL_COUNT; call++) {
		for (i = 0; i <= ANSWERS; i++)
			sum += call_counts[call][i];
	}
	return sum;
}

static bool
is_required(size_t call, size_t answer)
{
	char word[32];

	(void)snprintf(word, sizeof(word), " %s ", answers[answer].name);
	return strstr(calls[call].required, word) != NULL;
}

static bool
report_call(size_t call, bool quiet)
{
	bool complete = true;
	size_t i;

	if (!quiet)
		printf("  %-20s", calls[call].name);
	for (i = 0; i < ANSWERS; i++) {
		uint64_t count = call_counts[call][i];

		if (count > 0 && !quiet)
			printf(" %s %" PRIu64, answers[i].name, count);
		if (count > 0 || !is_required(call, i))
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
	bool complete = true;
	size_t i;

	for (i = 0; i < CALL_COUNT; i++)
		complete = report_call(i, quiet) && complete;
	for (i = 0; i < EVENT_COUNT; i++) {
		if (!quiet)
			printf(
			    "  %10" PRIu64 " %s\n", event_counts[i], events[i]);
		if (event_counts[i] == 0)
			printf("  never: %s\n", events[i]);
		complete = complete && event_counts[i] > 0;
	}
	return complete;
}
