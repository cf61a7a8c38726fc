/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor of touch: what no timer can do without. The handle is loaded from
 * the table, and one atomic addition changes the cache line that it names, of
 * as many lines as there are timeouts. Nothing is ever due, and no clock is
 * read.
 *
 * Who would call it unfair: the timers. It is a bound, and no baseline; what
 * does the same work at the least cost is mutex_wheel_lazy.h.
 */
#define SUBJECT_KEEPS_HANDLE 1
/* It is no timer: what is scheduled never starts. */
#define SUBJECT_FLOOR 1

typedef uint64_t subject_handle;

struct subject_line {
	_Alignas(64) atomic_uint_fast64_t touched;
};

struct subject {
	struct subject_line *lines;
	uint64_t used, capacity;
};

static inline const char *
subject_version(void)
{
	return "one atomic addition";
}

static inline struct subject *
subject_create(uint64_t tick_ns, uint64_t capacity)
{
	struct subject *floor = calloc(1, sizeof(*floor));

	(void)tick_ns;
	perf_must(floor, "calloc");
	/* Line 0 is never used, as a handle of 0 is none. */
	floor->capacity = capacity;
	floor->lines = aligned_alloc(64, (capacity + 1) * 64);
	perf_must(floor->lines, "aligned_alloc");
	return floor;
}

static inline void
subject_destroy(struct subject *floor)
{
	free(floor->lines);
	free(floor);
}

static inline void
subject_schedule(struct subject *floor, subject_handle *handle,
    void (*task)(void *), void *arg, uint64_t delay_ns)
{
	(void)task;
	(void)arg;
	(void)delay_ns;
	perf_must(floor->used < floor->capacity, "the capacity");
	floor->used++;
	atomic_init(&floor->lines[floor->used].touched, 0);
	if (handle)
		*handle = floor->used;
}

static inline void
subject_cancel(struct subject *floor, subject_handle handle)
{
	(void)floor;
	(void)handle;
}

static inline void
subject_reschedule(
    struct subject *floor, subject_handle *handle, uint64_t delay_ns)
{
	(void)delay_ns;
	atomic_fetch_add(&floor->lines[*handle].touched, 1);
}
