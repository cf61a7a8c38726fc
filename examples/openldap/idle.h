/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idle timeouts of connections for slapd: one timeout per connection, in the
 * process' shared timer. The script beside this file puts the calls into
 * slapd's source; slap.h includes this file, connection.c idle.c.
 */
#ifndef IDLE_H
#define IDLE_H

#include <hwt.h>

struct Connection;

/* Both with the connection's c_mutex held: when something came from the client,
 * and when the connection is closed. */
void idle_touch(struct Connection *c);
void idle_end(struct Connection *c);
/* When all connections are closed. */
void idle_stop(void);

#endif
