/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokio, for pair: a Sleep for each timeout in a runtime of several threads. It
 * is registered when it is polled first, and dropping it cancels. The Rust is
 * in perf/peer/tokio; a call into it takes some 2 ns of the hundreds.
 *
 * Who would call it unfair: who has a newer tokio than Debian's 1.24. A Sleep
 * has its own allocation here, with the task that its waker calls; tokio's
 * users have it inside a future, without that.
 */

typedef struct tokio_timeout *subject_handle;

const char *subject_version(void);
struct subject *subject_create(uint64_t tick_ns, uint64_t capacity);
void subject_destroy(struct subject *subject);
void subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns);
/* Either way, it is freed. */
void tokio_cancel(subject_handle timeout);

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	(void)subject;
	tokio_cancel(timeout);
}

static inline void
subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns)
{
	(void)subject;
	(void)handle;
	(void)delay_ns;
	perf_skip("tokio: for pair alone");
}
