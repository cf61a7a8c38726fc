/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boost.Asio's timers for C: what asio.h calls and asio.cc has.
 */
#ifndef ASIO_CALLS_H
#define ASIO_CALLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct asio_loop;
struct asio_timeout;

const char *asio_version(void);

/* NULL: no memory or no thread. */
struct asio_loop *asio_create(void);
void asio_destroy(struct asio_loop *loop);

/* The kernel's number of the thread. */
pid_t asio_thread(const struct asio_loop *loop);

/* handle may be NULL: then it cannot be cancelled. */
bool asio_schedule(struct asio_loop *loop, struct asio_timeout **handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns);

/* False: the task has begun, or is about to. Either way, it is freed. */
bool asio_cancel(struct asio_timeout *timeout);

/* False as for cancel; then it is freed. */
bool asio_reschedule(struct asio_timeout *timeout, void (*task)(void *arg),
    void *arg, uint64_t delay_ns);

#ifdef __cplusplus
}
#endif

#endif
