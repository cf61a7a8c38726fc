/* SPDX-License-Identifier: Apache-2.0 */
/* A server in this process: see embedded.c. */
#ifndef HWT_DURABLE_EMBEDDED_H
#define HWT_DURABLE_EMBEDDED_H

struct embedded;
struct hwt_durable;

/* -EBUSY, -EILSEQ, and what the system says about the folder; the log says
 * more. */
int embedded_start(struct hwt_durable *durable, const char *folder);
void embedded_stop(struct embedded *embedded); /* NULL: nothing */

/* fd: a socket that is connected to it. -EIO: its store has failed; -EMFILE. */
int embedded_connect(struct hwt_durable *durable, int *fd);

#endif
