/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static probes, for bpftrace, perf, SystemTap and gdb: each is one nop and a
 * note in the object file that says where its arguments are. They need
 * HWT_PROBES, which tools/probe defines if <sys/sdt.h> is there (Debian:
 * systemtap-sdt-dev). The provider is hwt.
 *
 * timer is an address; timeout is a handle's id, whose low 28 bits are the
 * number of its record; times are of the timer's clock, in ns.
 *
 *   PROBE       ARGUMENTS
 *   schedule    timer, timeout, deadline_ns, arg
 *   cancel      timer, timeout
 *   reschedule  timer, timeout, deadline_ns
 *   place       timer, record, tick
 *   expire      timer, timeout, deadline_ns, now_ns
 *   task_begin  timer, timeout, task, arg
 *   task_end    timer, timeout, task
 *   slow_task   timer, timeout, task, held_ns
 *   sleep       timer, until_ns
 *   wake        timer
 *
 * schedule comes before the worker can see the timeout; if stop wins a race,
 * the call is refused after it. cancel and reschedule come when the call has
 * won. place: the wheel has got an entry for the record. expire: the timeout is
 * about to be started or handed over; its lateness is now_ns - deadline_ns.
 * task_begin and task_end come on the thread that runs the task; slow_task on
 * the worker, after a task or an execute that took longer than slow_task_ns.
 * until_ns is HWT_NEVER without a deadline.
 */
#ifndef HWT_PROBE_H
#define HWT_PROBE_H

#if defined(HWT_PROBES) && !defined(HWT_ATOMIC_MODEL)
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define PROBE_OF(provider, name, ...) STAP_PROBEV(provider, name, __VA_ARGS__)
#else
/* Is not called: the arguments are only looked at by the compiler. */
static inline void
probe_off(const void *timer, ...)
{
	(void)timer;
}
#define PROBE_OF(provider, name, ...) (0 ? probe_off(__VA_ARGS__) : (void)0)
#endif

#define PROBE(name, ...) PROBE_OF(hwt, name, __VA_ARGS__)

#endif
