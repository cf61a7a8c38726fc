/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the subjects for one thread: a timer of another library or of the
 * kernel in a record with the task, kept for reuse. The header that includes
 * this one has native_timer before it, and
 *
 *   native_init     makes a timer that is not armed, once for each record
 *   native_arm      arms it, or moves its deadline; delay_ns is at least 1
 *   native_disarm
 *   native_close    releases it when the subject is destroyed
 *
 * and calls single_due when one is due, and single_destroy.
 */
#ifndef PERF_SINGLE_H
#define PERF_SINGLE_H

#define SUBJECT_SINGLE 1
#define SUBJECT_TURNS 1

/* holders: the timer, and the owner of a handle. */
struct single_timeout {
	native_timer timer;
	void (*task)(void *arg);
	void *arg;
	struct subject *subject;
	struct single_timeout *next_idle, *next_made;
	unsigned holders;
	bool is_pending;
};

typedef struct single_timeout *subject_handle;

/* The first member of the subject. */
struct single {
	struct single_timeout *idle, *made;
};

struct subject;
static void native_init(struct subject *, struct single_timeout *);
static void native_arm(struct subject *, struct single_timeout *, uint64_t);
static void native_disarm(struct single_timeout *);
static void native_close(struct single_timeout *);

static inline struct single_timeout *
single_take(struct subject *subject)
{
	struct single *single = (struct single *)subject;
	struct single_timeout *timeout = single->idle;

	if (timeout) {
		single->idle = timeout->next_idle;
		return timeout;
	}
	timeout = malloc(sizeof(*timeout));
	perf_must(timeout, "malloc");
	timeout->subject = subject;
	native_init(subject, timeout);
	timeout->next_made = single->made;
	single->made = timeout;
	return timeout;
}

static inline void
single_release(struct subject *subject, struct single_timeout *timeout)
{
	struct single *single = (struct single *)subject;

	if (--timeout->holders)
		return;
	timeout->next_idle = single->idle;
	single->idle = timeout;
}

static inline void
single_due(struct single_timeout *timeout)
{
	timeout->is_pending = false;
	timeout->task(timeout->arg);
	single_release(timeout->subject, timeout);
}

static inline void
single_destroy(struct subject *subject)
{
	struct single *single = (struct single *)subject;
	struct single_timeout *timeout;

	while ((timeout = single->made)) {
		single->made = timeout->next_made;
		native_close(timeout);
	}
}

static inline void
subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns)
{
	struct single_timeout *timeout = single_take(subject);

	timeout->task = task;
	timeout->arg = arg;
	timeout->holders = handle ? 2 : 1;
	timeout->is_pending = true;
	if (handle)
		*handle = timeout;
	native_arm(subject, timeout, delay_ns ? delay_ns : 1);
}

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	if (timeout->is_pending) {
		native_disarm(timeout);
		timeout->is_pending = false;
		timeout->holders--;
	} else {
		subject_refused++;
	}
	single_release(subject, timeout);
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	perf_must((*handle)->is_pending, "rescheduling");
	native_arm(subject, *handle, delay_ns ? delay_ns : 1);
}

#endif
