/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a space, as text. */
#ifndef HWT_DURABLE_METRICS_H
#define HWT_DURABLE_METRICS_H

#include <stdio.h>

#include "queues.h"

/* A line for each, name and value. */
void metrics_human(FILE *file, const struct hwt_durable_stats *stats,
    const struct queues *queues);

/* An object on one line. */
void metrics_json(FILE *file, const char *space,
    const struct hwt_durable_stats *stats, const struct queues *queues);

/* Prometheus' text format 0.0.4. stats NULL: the engine was not reached, and
 * hwt_durable_up 0 is all there is. */
void metrics_prometheus(FILE *file, const char *space,
    const struct hwt_durable_stats *stats, const struct queues *queues);

#endif
