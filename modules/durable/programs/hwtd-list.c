/* SPDX-License-Identifier: Apache-2.0 */
#include "hwtd-list.h"

#include <string.h>

#include "text.h"
#include "walk.h"

/* The set that has just the tasks of a state, if there is one. */
static const char *
set_of(enum hwt_durable_state state)
{
	switch (state) {
	case HWT_DURABLE_RUNNING:
		return "fly";
	case HWT_DURABLE_FAILED:
		return "dead";
	case HWT_DURABLE_QUARANTINED:
		return "bad";
	default:
		return NULL;
	}
}

static void
page_answer(struct page *page)
{
	struct api *api = page->api;
	const char *cursor = http_query(api->request, "cursor");
	const char *set = set_of(page->state);
	int error;

	page->body = api_json(api, 200);
	(void)fputs("{\"tasks\":[", page->body);
	error = set != NULL ? sets_walk(page, set, cursor)
			    : scan_walk(page, cursor);
	if (error != 0) {
		rewind(page->body);
		api_fail(api, error);
		return;
	}
	(void)fputs("],\"cursor\":", page->body);
	if (page->next[0] != '\0')
		(void)fprintf(page->body, "\"%s\"}\n", page->next);
	else
		(void)fputs("null}\n", page->body);
}

/* False: there is no such state. */
static bool
state_read(enum hwt_durable_state *state, const char *name)
{
	const char *each;
	int i;

	for (i = 1; (each = state_name((enum hwt_durable_state)i)) != NULL; i++)
		if (strcmp(each, name) == 0) {
			*state = (enum hwt_durable_state)i;
			return true;
		}
	return false;
}

void
api_tasks(struct api *api)
{
	struct page page = {.api = api, .limit = PAGE_DEFAULT};
	const char *state = http_query(api->request, "state");
	const char *limit = http_query(api->request, "limit");
	uint64_t number;

	page.queue = http_query(api->request, "queue");
	if (state != NULL && !state_read(&page.state, state))
		api_invalid(api, "\"state\": there is no such state");
	else if (page.queue != NULL &&
	    !name_is_valid(page.queue, HWT_DURABLE_QUEUE_MAX))
		api_invalid(api, "\"queue\" has 1 to 64 of A-Z a-z 0-9 . _ -");
	else if (limit != NULL && !text_number(limit, 1, PAGE_MAX, &number))
		api_invalid(api, "\"limit\" is 1 to 500");
	else {
		if (limit != NULL)
			page.limit = (size_t)number;
		page_answer(&page);
	}
}

void
api_dead(struct api *api)
{
	struct page page = {
	    .api = api, .state = HWT_DURABLE_FAILED, .limit = PAGE_DEFAULT};

	page_answer(&page);
}
