/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controls, whose numbers are known: a counter of each core's own moves no
 * line; one that all share moves with each addition; a stack's top with each
 * push and each pop. And perf/mutex_wheel.h, without its worker.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "simulator.h"
#include "subjects.h"

static int model_lock(pthread_mutex_t *mutex);
static int model_unlock(pthread_mutex_t *mutex);
#define pthread_mutex_lock model_lock
#define pthread_mutex_unlock model_unlock
#define pthread_create(thread, attributes, main, wheel) ((void)(main), 0)
/* Its timeouts are embedded: malloc is not compiled here, nor counted. */
#define MUTEX_WHEEL_EMBEDDED 1
#include "perf/mutex_wheel.h"
#undef pthread_mutex_lock
#undef pthread_mutex_unlock
#undef pthread_create

static struct {
	_Alignas(128) atomic_uint_fast64_t value;
} own[CORES_MAX], shared;

static struct node {
	_Alignas(128) struct node *next;
} node[CORES_MAX];
static struct {
	_Alignas(128) _Atomic(struct node *) top;
} stack;

void
own_counter(unsigned core)
{
	atomic_fetch_add(&own[core].value, 1);
}

void
shared_counter(unsigned core)
{
	(void)core;
	atomic_fetch_add(&shared.value, 1);
}

/* A core pushes a node of its own, and pops until it has got one. Who pops
 * another one's uses that from then on: so nodes do not come back soon, and
 * there is no ABA in so few steps. */
void
stack_pair(unsigned core)
{
	static struct node *mine[CORES_MAX];
	struct node *pushed = mine[core] != NULL ? mine[core] : &node[core];
	struct node *top = atomic_load(&stack.top);

	do
		pushed->next = top;
	while (!atomic_compare_exchange_strong(&stack.top, &top, pushed));
	top = atomic_load(&stack.top);
	while (!atomic_compare_exchange_strong(&stack.top, &top, top->next))
		;
	mine[core] = top;
}

static struct mutex_wheel *wheel;

static int
model_lock(pthread_mutex_t *mutex)
{
	core_lock((unsigned *)(void *)mutex);
	return 0;
}

static int
model_unlock(pthread_mutex_t *mutex)
{
	core_unlock((unsigned *)(void *)mutex);
	return 0;
}

void
mutex_wheel_open(void)
{
	wheel = mutex_wheel_create(1000000000, 512);
	if (wheel == NULL)
		abort();
}

static void
no_task(void *arg)
{
	(void)arg;
}

/* Of each core, in a line of its own. */
static struct {
	_Alignas(128) struct mutex_wheel_timeout *timeout;
} mine[CORES_MAX];

/* Of no clock: what is counted is the same in each run. */
static uint64_t
far_away(void)
{
	return wheel->origin_ns + UINT64_C(60000000000);
}

void
mutex_wheel_schedule_one(unsigned core)
{
	mine[core].timeout =
	    mutex_wheel_schedule_at(wheel, no_task, NULL, far_away(), true);
}

void
mutex_wheel_cancel_one(unsigned core)
{
	(void)mutex_wheel_cancel(wheel, mine[core].timeout);
	mine[core].timeout = NULL;
}

void
mutex_wheel_pair(unsigned core)
{
	mutex_wheel_schedule_one(core);
	mutex_wheel_cancel_one(core);
}

void
mutex_wheel_touch(unsigned core)
{
	if (mine[core].timeout == NULL)
		mutex_wheel_schedule_one(core);
	(void)mutex_wheel_reschedule_at(wheel, mine[core].timeout, far_away());
}
