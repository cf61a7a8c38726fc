/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt: by its public functions, one call each. hwt_at has deadlines, in a loop
 * that reads the clock once per turn (SUBJECT_DEADLINES); hwt_relaxed has
 * HWT_RELAXED, which reads no clock as it schedules.
 *
 * Its tasks get their handle as well as their argument, so that the workload's
 * tasks have that shape here: see SUBJECT_TASK.
 */
#ifndef SUBJECT_HWT_FLAGS
#define SUBJECT_HWT_FLAGS 0
#endif
#define SUBJECT_KEEPS_HANDLE 1
/* With HWT_RELAXED the caller does not know the tick. */
#define SUBJECT_TICK_ORDER (!(SUBJECT_HWT_FLAGS & HWT_RELAXED))
#define SUBJECT_TELLS 1
#define SUBJECT_WHEELS 1
/* An executor can be chosen; the caller can turn the wheel. */
#define SUBJECT_EXECUTORS 1
#define SUBJECT_MANUAL 1

#undef SUBJECT_TASK
#define SUBJECT_TASK(name, arg) \
	static void name(       \
	    __attribute__((unused)) hwt_timeout name##_timeout, void *arg)

typedef hwt_timeout subject_handle;

struct subject {
	struct hwt *timer;
};

static inline const char *
subject_version(void)
{
	static char version[32];

	snprintf(version, sizeof(version), "hwt %s", hwt_version());
	return version;
}

static inline struct subject *
subject_make(const struct hwt_options *options)
{
	struct subject *made = malloc(sizeof(*made));

	perf_must(made && !hwt_create(&made->timer, options), "hwt_create");
	if (!(options->flags & HWT_MANUAL))
		perf_must(!hwt_start(made->timer), "hwt_start");
	return made;
}

static inline struct subject *
subject_create_wheel(uint64_t tick_ns, uint64_t capacity, uint64_t buckets)
{
	struct hwt_options options = {.tick_ns = tick_ns,
	    .ticks_per_wheel = (uint32_t)buckets,
	    .flags = SUBJECT_HWT_FLAGS};

	(void)capacity;
	return subject_make(&options);
}

static inline struct subject *
subject_create_on(
    uint64_t tick_ns, uint64_t capacity, const struct hwt_executor *executor)
{
	struct hwt_options options = {.tick_ns = tick_ns,
	    .executor = executor,
	    .flags = SUBJECT_HWT_FLAGS};

	(void)capacity;
	return subject_make(&options);
}

/* Turned by subject_advance, in one thread, and by no other. */
static inline struct subject *
subject_create_manual(uint64_t tick_ns)
{
	struct hwt_options options = {
	    .tick_ns = tick_ns, .flags = SUBJECT_HWT_FLAGS | HWT_MANUAL};

	return subject_make(&options);
}

static inline void
subject_advance(struct subject *subject)
{
	perf_must(!hwt_advance(subject->timer, NULL), "hwt_advance");
}

/* How long it has nothing to do. */
static inline uint64_t
subject_next_wakeup(struct subject *subject)
{
	uint64_t wait_ns;

	perf_must(
	    !hwt_next_wakeup(subject->timer, &wait_ns), "hwt_next_wakeup");
	return wait_ns;
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	return subject_create_wheel(tick_ns, capacity, 0);
}

static inline void
subject_destroy(struct subject *subject)
{
	perf_must(
	    !hwt_stop(subject->timer, NULL) && !hwt_destroy(subject->timer),
	    "hwt_destroy");
	free(subject);
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    hwt_task *task, void *arg, uint64_t delay_ns)
{
	int error;

	if (SUBJECT_DEADLINES && subject_turn_ns)
		error = hwt_new_timeout_at(subject->timer, NULL, handle, task,
		    arg, subject_turn_ns + delay_ns);
	else
		error = hwt_new_timeout(
		    subject->timer, handle, task, arg, delay_ns);
	perf_must(!error, "hwt_new_timeout");
}

static inline void
subject_cancel(struct subject *subject, subject_handle handle)
{
	if (hwt_cancel(subject->timer, handle))
		subject_refused++;
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	int error;

	if (SUBJECT_DEADLINES && subject_turn_ns)
		error = hwt_reschedule_at(
		    subject->timer, *handle, subject_turn_ns + delay_ns);
	else
		error = hwt_reschedule(subject->timer, *handle, delay_ns);
	perf_must(!error, "hwt_reschedule");
}
