/* SPDX-License-Identifier: Apache-2.0 */
/* request: which call the payload of a task asks hwt-http for. */
#include "modules/durable/programs/hwt-http-request.h"
#include "modules/durable/test/spec/durable.h"

#include <stdlib.h>
#include <string.h>

SUITE(request);

static const char payload[] =
    "{\"url\": \"https://a.example:8443/b/../c?d=e\", \"method\": \"PUT\","
    "\"headers\": {\"X-Key\": \"a\\u00e9\"}, \"body\": \"b\","
    "\"timeout\": 1.5}";

static int
read_payload(struct request *request, char why[WHY_MAX])
{
	return request_read(request, payload, sizeof(payload) - 1, why);
}

/* As strdup, of memory that may fail here. */
static char *
copy(const char *text)
{
	char *made = malloc(strlen(text) + 1);

	return made != NULL ? strcpy(made, text) : NULL;
}

static void
open_libraries(void)
{
	cr_assert(curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, free,
		      realloc, copy, calloc) == CURLE_OK);
	requests_init();
}

Test(request, a_payload_that_is_no_call_fails_for_good)
{
	struct request request;
	char why[WHY_MAX];

	open_libraries();

	assert_ok(read_payload(&request, why));
	cr_assert_str_eq(request.target.origin, "https://a.example:8443");
	request_free(&request);
	cr_assert(request_read(&request, "{\"url\": 1}", 10, why) ==
	    HWT_DURABLE_FAIL);
	cr_assert(strstr(why, "the payload is no call: ") == why);
	cr_assert(request_read(&request, "{\"url\": \"ftp://a\"}", 18, why) ==
	    HWT_DURABLE_FAIL);
	cr_assert(strstr(why, "url: ") == why);

	curl_global_cleanup();
}

Test(request, without_memory_a_payload_is_tried_again)
{
	struct request request;
	char why[WHY_MAX];
	uint64_t count, i;
	int outcome;

	open_libraries();
	fault_arm(FAULT_HEAP, FAULT_COUNT);
	assert_ok(read_payload(&request, why));
	count = fault_disarm();
	request_free(&request);
	cr_assert(count > 20, "%lu", (unsigned long)count);

	for (i = 1; i <= count; i++) {
		fault_arm(FAULT_HEAP, i);
		outcome = read_payload(&request, why);
		(void)fault_disarm();
		cr_assert(outcome == HWT_DURABLE_RETRY, "allocation %lu: %s",
		    (unsigned long)i, outcome != 0 ? why : "nothing");
		cr_assert_str_eq(why, "no memory");
	}

	curl_global_cleanup();
}
