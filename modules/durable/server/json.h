/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of the engine as JSON (RFC 8259). */
#ifndef HWT_DURABLE_SERVER_JSON_H
#define HWT_DURABLE_SERVER_JSON_H

#include <hiredis/hiredis.h>
#include <stdio.h>

/* A string; bytes that are not UTF-8 become U+FFFD. */
void json_text(FILE *out, const char *bytes, size_t length);

/* An id, which may have any bytes, as it is written in a path: all but
 * unreserved characters (RFC 3986) are percent-encoded. */
void json_id(FILE *out, const char *bytes, size_t length);

/* NAME: a number, or a string; a string that is not UTF-8 is NAME-base64. */
void json_member(FILE *out, const char *name, const redisReply *value);

/* {..} of a reply of names and values, without the braces. */
void json_members(FILE *out, const redisReply *pairs);

#endif
