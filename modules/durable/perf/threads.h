/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of a queue whose library has none: each runs the function work,
 * which the queue defines and which returns when stopping is set.
 */
#ifndef HWT_DURABLE_PERF_THREADS_H
#define HWT_DURABLE_PERF_THREADS_H

#include <pthread.h>
#include <stdatomic.h>

#include "modules/durable/perf/queue.h"

static atomic_bool stopping;
static pthread_t thread[64];
static unsigned threads_count;

static void *work(void *argument);

void
work_start(unsigned threads)
{
	for (; threads_count < threads; threads_count++)
		if (pthread_create(&thread[threads_count], NULL, work, NULL) !=
		    0)
			FAIL("no thread");
}

void
work_stop(void)
{
	atomic_store(&stopping, true);
	while (threads_count > 0)
		(void)pthread_join(thread[--threads_count], NULL);
}

#endif
