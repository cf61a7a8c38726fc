/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLib, timeouts as sources of a GMainContext with a thread of its own:
 * g_timeout_source_new and g_source_attach, g_source_destroy, and
 * g_source_set_ready_time to reschedule. GLib allocates each source, and we a
 * block for task and argument, which the source frees. The handle is a
 * reference. A task that is about to start cannot be held back any more: a
 * cancel in that moment is not refused, and yet it starts.
 *
 * A context looks at all its sources in each turn, and each call from another
 * thread that attaches or moves one wakes it for a turn. Skipped when so many
 * are asked for that a table of them would take minutes to fill.
 *
 * Who would call it unfair: who writes programs with windows, with ten timeouts
 * in the main thread. It is here since libraries use it in servers as well.
 */
#define SUBJECT_KEEPS_HANDLE 1

#include <glib.h>

#include "perf/peer.h"

enum {
	GLIB_CAPACITY_MAX = 200000
};

struct glib_timeout {
	void (*task)(void *arg);
	void *arg;
};

typedef GSource *subject_handle;

struct subject {
	GMainContext *context;
	atomic_bool stopping;
	pthread_t worker;
};

static inline const char *
subject_version(void)
{
	char version[32];

	snprintf(version, sizeof(version), "%u.%u.%u", glib_major_version,
	    glib_minor_version, glib_micro_version);
	return peer_version("GLib", version);
}

/* A wake-up that comes before the turn is not lost. */
static inline void *
glib_worker(void *arg)
{
	struct subject *subject = arg;

	while (!atomic_load(&subject->stopping))
		g_main_context_iteration(subject->context, TRUE);
	return NULL;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *subject = calloc(1, sizeof(*subject));

	(void)tick_ns;
	if (capacity > GLIB_CAPACITY_MAX)
		perf_skip("a GMainContext looks at all sources in each turn");
	perf_must(subject, "calloc");
	atomic_init(&subject->stopping, false);
	subject->context = g_main_context_new();
	perf_start(&subject->worker, glib_worker, subject);
	return subject;
}

/* The context destroys the sources that it has; those with a handle stay. */
static inline void
subject_destroy(struct subject *subject)
{
	atomic_store(&subject->stopping, true);
	g_main_context_wakeup(subject->context);
	pthread_join(subject->worker, NULL);
	g_main_context_unref(subject->context);
	free(subject);
}

static inline gboolean
glib_due(gpointer arg)
{
	struct glib_timeout *timeout = arg;

	timeout->task(timeout->arg);
	return G_SOURCE_REMOVE;
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct glib_timeout *timeout = malloc(sizeof(*timeout));
	GSource *source;

	perf_must(timeout, "malloc");
	timeout->task = task;
	timeout->arg = arg;
	source = g_timeout_source_new((guint)peer_ms(delay_ns));
	g_source_set_callback(source, glib_due, timeout, free);
	if (handle)
		*handle = source;
	g_source_attach(source, subject->context);
	if (!handle)
		g_source_unref(source);
}

static inline void
subject_cancel(struct subject *subject, subject_handle source)
{
	(void)subject;
	g_source_destroy(source);
	g_source_unref(source);
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	gint64 due_us = g_get_monotonic_time() +
	    (gint64)(delay_ns / 1000u + !!(delay_ns % 1000u));

	(void)subject;
	g_source_set_ready_time(*handle, due_us);
	perf_must(!g_source_is_destroyed(*handle), "rescheduling");
}
