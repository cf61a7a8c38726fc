/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of a space, as text. */
#ifndef HWT_DURABLE_METRICS_H
#define HWT_DURABLE_METRICS_H

#include <stdio.h>

#include "modules/durable/hwt_durable.h"

/* A line for each, name and value. */
void metrics_human(FILE *file, const struct hwt_durable_stats *stats);

/* An object on one line. */
void metrics_json(
    FILE *file, const char *space, const struct hwt_durable_stats *stats);

/* Prometheus' text format 0.0.4. stats NULL: the engine was not reached, and
 * hwt_durable_up 0 is all there is. */
void metrics_prometheus(
    FILE *file, const char *space, const struct hwt_durable_stats *stats);

#endif
