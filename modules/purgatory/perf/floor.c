/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the measurement itself costs, in load=closed, inflight, open: requests
 * are made, drawn, asked once and freed in turn, and nobody waits for anything.
 * It is a bound, and no baseline. In load=open the last 1024 are lost.
 */
#include <stdlib.h>

#include "modules/purgatory/perf/design.h"
#include "perf/perf.h"

enum {
	RING = 1024
};

static _Thread_local struct request *ring[RING];
static _Thread_local uint64_t place;

static void
nothing(void)
{
}

static void
nothing_of(uint32_t key)
{
	(void)key;
}

static uint64_t
watch(struct request *request, uint64_t delay_ns)
{
	struct request **at = &ring[place++ % RING];

	(void)delay_ns;
	(void)request_holds(request);
	if (*at != NULL) {
		request_ended(*at, false);
		free(*at);
	}
	*at = request;
	return 0;
}

static uint64_t
linked(void)
{
	return 0;
}

const struct design design = {"nothing", nothing, nothing, watch, nothing_of,
    nothing_of, linked, NULL, NULL};
