/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a worker, of hwt-exec and hwt-http, and its --metrics: GET
 * /metrics, to whoever asks. */
#ifndef HWT_DURABLE_WORKER_SERVE_H
#define HWT_DURABLE_WORKER_SERVE_H

#include "options.h"

/* Of the option: [ADDRESS:]PORT; NULL: there is no such server. */
extern const char *worker_metrics_at;

/* Listens, and tells where; it ends the process if it cannot. */
void worker_metrics_open(void);

/* Serves until SIGTERM, SIGINT, or the space is gone: blocks these signals, and
 * starts a worker; at the end calls release, unless it is NULL, with the
 * worker's ctx, and stops the worker, which waits so long for callbacks at a
 * time. Tells what goes wrong; it is in the status. */
enum status worker_serve(struct hwt_durable *durable,
    const struct hwt_durable_worker_options *options, void (*release)(void *),
    uint64_t patience_ns);

#endif
