/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks as lines of JSON: an object each, with "queue", and "in" or "at"
 * (seconds); and, if they are given, "id", "attempts", and "payload". In the
 * place of id and payload, "id_base64" and "payload_base64" take any bytes. No
 * other member, no exponent in a number, and UTF-8 throughout.
 */
#ifndef HWT_DURABLE_LINES_H
#define HWT_DURABLE_LINES_H

#include "modules/durable/hwt_durable.h"

/* Reads a line, which it changes, and which must outlive the task. Without an
 * id, id is NULL. Returns NULL, or what is wrong with the line. */
const char *line_parse(
    char *line, size_t length, struct hwt_durable_task *task);

#endif
