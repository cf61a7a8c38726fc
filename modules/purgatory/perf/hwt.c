/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_purgatory. */
#include "modules/purgatory/hwt_purgatory.h"

#include "modules/purgatory/perf/design.h"

static struct hwt *timer;
static struct hwt_purgatory *purgatory;

#define key_of(name) ((struct hwt_key){1, (name)})

static void
create(uint32_t links)
{
	const struct hwt_options options = {.tick_ns = HWT_MS(1)};

	(void)links;
	perf_must(hwt_create(&timer, &options) == 0 &&
		hwt_purgatory_create(&purgatory, timer, NULL) == 0,
	    "create");
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
	(void)operation, (void)outcome;
	request_ended(arg);
	free(arg);
}

static void
watch(struct request *request, uint64_t delay_ns)
{
	struct hwt_key keys[KEYS_MAX];
	const struct hwt_operation_spec spec = {
	    .try_complete = load == LOAD_CLOSED ? try_request : NULL,
	    .done = done,
	    .arg = request,
	    .keys = keys,
	    .key_count = request->key_count,
	    .delay_ns = delay_ns,
	    .at_least = request->at_least};
	uint32_t i;

	for (i = 0; i < request->key_count; i++)
		keys[i] = key_of(request->key[i]);
	perf_must(hwt_purgatory_watch(purgatory, NULL, &spec) >= 0, "watch");
}

static void
event(uint32_t key, uint64_t value)
{
	if (load == LOAD_CLOSED)
		(void)hwt_purgatory_check(purgatory, key_of(key), NULL);
	else if (load == LOAD_INFLIGHT)
		(void)hwt_purgatory_cancel_key(purgatory, key_of(key), NULL);
	else
		(void)hwt_purgatory_raise(purgatory, key_of(key), value, NULL);
}

const struct design design = {
    "hwt_purgatory", sizeof(struct request), true, create, watch, event};
