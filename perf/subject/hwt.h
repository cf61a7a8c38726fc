/* SPDX-License-Identifier: Apache-2.0 */
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
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct hwt_options options = {.tick_ns = tick_ns};
	struct subject *made = malloc(sizeof(*made));

	(void)capacity;
	perf_must(made && !hwt_create(&made->timer, &options) &&
		!hwt_start(made->timer),
	    "hwt_create");
	return made;
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
