/* SPDX-License-Identifier: Apache-2.0 */
/* --metrics of hwt-exec and hwt-http: GET /metrics, to whoever asks. */
#ifndef HWT_DURABLE_WORKER_METRICS_H
#define HWT_DURABLE_WORKER_METRICS_H

#include "modules/durable/hwt_durable.h"

/* Of the option: [ADDRESS:]PORT; NULL: there is no such server, and what
 * follows does nothing. */
extern const char *worker_metrics_at;

/* Listens, and tells where; it ends the process if it cannot. */
void worker_metrics_open(void);

/* Answers, from the worker's start until before its stop. Ends the process if
 * it cannot. */
void worker_metrics_start(struct hwt_durable_worker *worker);
void worker_metrics_stop(void);

#endif
