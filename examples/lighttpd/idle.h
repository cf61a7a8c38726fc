/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timeouts of connections for lighttpd: one timeout per connection, in a timer
 * that the loop turns. The script beside this file puts the calls into
 * lighttpd's source; base.h includes this file, connections.c idle.c.
 */
#ifndef IDLE_H
#define IDLE_H

#include <hwt.h>

struct connection;

/* The times that a connection has. */
enum idle_stamp {
	IDLE_READ,
	IDLE_WRITE,
	IDLE_CLOSE,
	IDLE_STAMPS
};

/* What a connection has. lighttpd counts whole seconds: noted are its times
 * when they were last seen, at_ns what they are in nanoseconds. */
struct idle_times {
	hwt_timeout timeout;
	uint64_t due_ns, at_ns[IDLE_STAMPS];
	int64_t noted[IDLE_STAMPS];
	/* 0, or when its bytes of a second are to be counted anew. */
	uint64_t again_ns;
};

/* After the assignment to the time. */
void idle_stamp(struct connection *con, enum idle_stamp which);
/* After each change of state. */
void idle_settle(struct connection *con);
void idle_end(struct connection *con);
/* For the loop: how long it may sleep, at most max_ms; and after that. */
int idle_wait_ms(int max_ms);
void idle_turn(void);

#endif
