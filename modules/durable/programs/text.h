/* SPDX-License-Identifier: Apache-2.0 */
/* Text that comes from outside, and goes there: numbers, UTF-8, base64, JSON.
 */
#ifndef HWT_DURABLE_TEXT_H
#define HWT_DURABLE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A whole number of decimal digits alone, from min to max. */
bool text_number(
    const char *text, uint64_t min, uint64_t max, uint64_t *number);

/* Seconds, with at most 9 digits after a point; neither sign nor exponent. Less
 * than 2^63 ns. */
bool text_seconds(const char *text, size_t length, uint64_t *ns);

/* Writes it so that it neither ends the line nor controls a terminal: what is
 * no UTF-8, and control characters, as \xHH. */
void text_write(FILE *file, const char *text, size_t length);

/* Decodes in place, and shortens *length. False: that was no base64. */
bool base64_decode(char *text, size_t *length);
void base64_write(FILE *file, const char *text, size_t length);

/* Writes "key":"text"; or, if text is no UTF-8, "key_base64":"...". */
void json_write(FILE *file, const char *key, const char *text, size_t length);

/* Writes ,"priority":"high" or "low"; of normal flags nothing. */
void priority_write(FILE *file, uint64_t flags);

#endif
