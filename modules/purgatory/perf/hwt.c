/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_purgatory. */
#include "modules/purgatory/hwt_purgatory.h"

#include "modules/purgatory/perf/design.h"

static struct hwt *timer;
static struct hwt_purgatory *purgatory;

static void
create(void)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};

	perf_must(hwt_create(&timer, &options) == 0, "hwt_create");
	perf_must(hwt_purgatory_create(&purgatory, timer, NULL) == 0,
	    "hwt_purgatory_create");
}

static void
destroy(void)
{
	perf_must(hwt_purgatory_shutdown(purgatory) == 0, "shutdown");
	perf_must(hwt_purgatory_destroy(purgatory) == 0, "destroy");
	perf_must(hwt_stop(timer, NULL) == 0, "hwt_stop");
	perf_must(hwt_destroy(timer) == 0, "hwt_destroy");
}

static bool
try_request(hwt_operation operation, void *arg)
{
	(void)operation;
	return request_holds(arg);
}

static void
done(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	(void)operation;
	(void)outcome;
	if (arg != NULL)
		request_ended(arg);
	free(arg);
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	struct hwt_key keys[KEYS_MAX];
	struct hwt_operation_spec spec = {.try_complete = try_request,
	    .done = done,
	    .arg = request,
	    .keys = keys,
	    .key_count = request->key_count,
	    .delay_ns = delay_ns};
	uint32_t i;

	for (i = 0; i < request->key_count; i++)
		keys[i] = (struct hwt_key){1, request->key[i]};
	perf_must(hwt_purgatory_watch(purgatory, NULL, &spec) >= 0, "watch");
}

static void
check(uint32_t key)
{
	(void)hwt_purgatory_check(purgatory, (struct hwt_key){1, key}, NULL);
}

static void
finish(uint32_t key)
{
	(void)hwt_purgatory_cancel_key(
	    purgatory, (struct hwt_key){1, key}, NULL);
}

static void
watch_value(uint32_t key, uint64_t at_least)
{
	const struct hwt_key name = {1, key};
	const struct hwt_operation_spec spec = {.done = done,
	    .keys = &name,
	    .key_count = 1,
	    .at_least = at_least,
	    .delay_ns = HWT_SEC(100)};

	perf_must(hwt_purgatory_watch(purgatory, NULL, &spec) >= 0, "watch");
}

static void
raise_value(uint32_t key, uint64_t value)
{
	(void)hwt_purgatory_raise(
	    purgatory, (struct hwt_key){1, key}, value, NULL);
}

const struct design design = {"hwt_purgatory", create, destroy, watch, check,
    finish, watch_value, raise_value};
