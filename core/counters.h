/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of struct hwt_stats. A row makes a member of struct cache, of
 * which each thread has one, or of struct worker, and is all that
 * hwt_read_stats and hwt_stats_write need. One thread writes it at a time, by
 * cache_count or a64_count.
 * COUNTER(member, metric, help): the metric is hwt_METRIC_total. */
#ifndef HWT_COUNTERS_H
#define HWT_COUNTERS_H

#define CACHE_COUNTERS(COUNTER)                                        \
	COUNTER(scheduled, "timeouts_scheduled", "Timeouts accepted.") \
	COUNTER(started, "tasks_started", "Tasks that were begun.")    \
	COUNTER(cancelled, "timeouts_cancelled", "Cancels that won.")  \
	COUNTER(rescheduled, "timeouts_rescheduled",                   \
	    "Reschedules that succeeded.")                             \
	COUNTER(rejected, "timeouts_rejected",                         \
	    "Timeouts refused because of max_pending.")

#define WORKER_COUNTERS(COUNTER)                                              \
	COUNTER(executor_refused, "executor_refusals",                        \
	    "Timeouts that executors refused.")                               \
	COUNTER(ticks, "ticks", "Tick boundaries that the worker has begun.") \
	COUNTER(wakeups, "wakeups", "Returns of the worker from sleep.")      \
	COUNTER(                                                              \
	    late_ticks, "late_ticks", "Ticks begun more than a tick late.")   \
	COUNTER(slow_tasks, "slow_tasks",                                     \
	    "Tasks that held the worker longer than slow_task_ns.")

#define COUNTER_MEMBER(member, ...) a64_t member;

#endif
