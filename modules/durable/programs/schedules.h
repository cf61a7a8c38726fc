/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as text. */
#ifndef HWT_DURABLE_SCHEDULES_H
#define HWT_DURABLE_SCHEDULES_H

#include <stdbool.h>
#include <stdio.h>

#include "modules/durable/hwt_durable.h"

/* Writes an object of JSON, whole or without the payload. */
void schedule_write(FILE *file, const struct hwt_durable_schedule *schedule,
    const struct hwt_durable_schedule_info *info, bool whole);

/* "last", "all" or "none". */
bool missed_read(const char *text, uint32_t *missed);

#endif
