/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all parts of the client of an engine ask of it: names, keys, times. See
 * engine.h; its other files are named in engine_internal.h.
 */
#include <stdio.h>

#include "engine_internal.h"

#define LAST_PART 10u /* of the time: the least that anybody is given */

const char *
engine_space(const struct engine *engine)
{
	return engine->space;
}

bool
engine_is_gone(const struct engine *engine, uint64_t for_ns)
{
	uint64_t since = a64_load_relaxed(&engine->gone_ns);

	return since != 0 && boot_now_ns() - since >= for_ns;
}

void
engine_set_identity(struct engine *engine, uint64_t identity)
{
	(void)argument_number(&engine->identity, identity);
}

uint64_t
engine_timeout_ns(const struct engine *engine)
{
	return engine->timeout_ns;
}

uint32_t
engine_level(const struct engine *engine)
{
	return engine->level;
}

bool
engine_is_cluster(const struct engine *engine)
{
	return engine->servers.kind == ROUTE_CLUSTER;
}

void
engine_key(const struct engine *engine, char key[ENGINE_KEY_MAX],
    uint32_t shard, const char *name)
{
	if (shard == SHARD_SPACE)
		(void)snprintf(
		    key, ENGINE_KEY_MAX, "{%s}:%s", engine->space, name);
	else
		(void)snprintf(key, ENGINE_KEY_MAX, "{%s:%u}:%s", engine->space,
		    shard, name);
}

struct limit
engine_limit(const struct engine *engine, const struct engine_wait *wait)
{
	uint64_t timeout_ns =
	    wait->timeout_ns != 0 ? wait->timeout_ns : engine->timeout_ns;

	return (struct limit){limit_now_ns() + timeout_ns, wait->stop_fd};
}

/* A part of what is left, so that one server that does not answer leaves time
 * for the others. */
struct limit
limit_part(const struct limit *limit, uint32_t parts)
{
	uint64_t now = limit_now_ns();
	struct limit part = *limit;

	if (part.deadline_ns > now)
		part.deadline_ns = now + (part.deadline_ns - now) / parts;
	return part;
}

/* A tenth of a time: what is too little to judge by, and enough to show that
 * one is back. */
uint64_t
least_of(uint64_t ns)
{
	return ns / LAST_PART;
}
