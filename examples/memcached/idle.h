/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idle timeouts for memcached: one timeout per connection, one mailbox per
 * worker thread. The script beside this file puts the calls into memcached's
 * source; memcached.h includes this file.
 */
#ifndef IDLE_H
#define IDLE_H

#include <hwt.h>

/* What a worker thread has. */
struct idle_thread {
	struct hwt_mailbox *mailbox;
	struct event event;
};

#endif
