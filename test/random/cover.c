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

/* Each of them, and what is reserved, is all that there is. */
#define X(field) +sizeof(((struct hwt_spec *)0)->field)
_Static_assert(sizeof(struct hwt_spec) == 0 SPEC_FIELDS(X) X(reserved),
    "struct hwt_spec has a field that the model does not set");
#undef X

static struct {
	const char *name;
	/* Specs in which it was not 0. */
	uint64_t count;
} spec_fields[] = {
#define X(field) {#field, 0},
    SPEC_FIELDS(X)
#undef X
};

#define FIELDS (sizeof(spec_fields) / sizeof(spec_fields[0]))

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

void
cover_spec(const struct hwt_spec *spec)
{
	size_t i = 0;

#define X(field) spec_fields[i++].count += spec->field != 0;
	SPEC_FIELDS(X)
#undef X
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
		if (count > 0 && !is_required(call, i)) {
			complete = false;
			printf(" %s answered %s, which its list has not",
			    calls[call].name, answers[i].name);
		}
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
	for (i = 0; i < FIELDS; i++) {
		if (!quiet)
			printf("  %10" PRIu64 " hwt_spec.%s\n",
			    spec_fields[i].count, spec_fields[i].name);
		if (spec_fields[i].count == 0)
			printf(
			    "  never set: hwt_spec.%s\n", spec_fields[i].name);
		complete = complete && spec_fields[i].count > 0;
	}
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
