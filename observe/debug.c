/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HWT_DEBUG=leaks, in the environment: hwt(7). A list of what was made and not
 * destroyed is under the lock of the registry, which a forked child makes anew.
 * A child inherits the list with its parent's objects, and leaves them out of
 * its report: they are not of its epoch. The list changes by one store, so that
 * a fork finds it whole.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/debug.h"
#include "sys/log.h"
#include "core/timer.h"
#include "observe/symbol.h"

struct listed {
	struct listed *next;
	const char *what;
	const void *address;
	uint64_t epoch;
	const void *place;
};

static struct listed *objects;

/* Without memory, the object is not in the report. */
static void
object_made(
    const char *what, const void *address, uint64_t epoch, const void *place)
{
	struct listed *object = calloc(1, sizeof(*object));

	if (object == NULL)
		return;
	object->what = what;
	object->address = address;
	object->epoch = epoch;
	object->place = place;
	process_lock();
	object->next = objects;
	objects = object;
	process_unlock();
}

/* One that was made before the library's constructor has run is not in the
 * list. */
static void
object_destroyed(const void *address)
{
	struct listed **link = &objects;
	struct listed *object;

	process_lock();
	while (*link != NULL && (*link)->address != address)
		link = &(*link)->next;
	object = *link;
	if (object != NULL)
		*link = object->next;
	process_unlock();
	free(object);
}

/* The shared timer lives as long as the process. */
static bool
is_shared_timer(const struct listed *object)
{
	const struct hwt *timer = object->address;

	return strcmp(object->what, "timer") == 0 && timer->shared;
}

/* Takes the list over, and marks what is not to be told. */
static struct listed *
take_objects(void)
{
	struct listed *taken, *object;

	process_lock();
	taken = objects;
	objects = NULL;
	for (object = taken; object != NULL; object = object->next)
		if (!process_owns(object->epoch) || is_shared_timer(object))
			object->what = NULL;
	process_unlock();
	return taken;
}

/* After the destructors of the program and of what uses the library. Names are
 * asked for without the lock: the dynamic linker has one of its own. */
__attribute__((destructor(101))) static void
report_leaks(void)
{
	struct listed *object, *next;
	char place[SYMBOL_BYTES];

	if (debug.made == NULL)
		return;
	for (object = take_objects(); object != NULL; object = next) {
		if (object->what != NULL)
			log_stderr("alive at exit: %s %p, made at %s",
			    object->what, object->address,
			    symbol_name(object->place, place, sizeof(place)));
		next = object->next;
		free(object);
	}
}

__attribute__((constructor(101))) static void
debug_init(void)
{
	const char *word = system_environment("HWT_DEBUG");

	if (word == NULL || *word == '\0')
		return;
	if (strcmp(word, "leaks") == 0)
		debug = (struct debug){object_made, object_destroyed};
	else
		log_stderr("HWT_DEBUG=%s: the only word is leaks", word);
}
