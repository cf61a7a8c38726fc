/* SPDX-License-Identifier: Apache-2.0 */
#include "modules/durable/server/json.h"

#include <stdbool.h>
#include <string.h>

/* How many bytes a character has; 0: it is none of UTF-8 (RFC 3629). */
static size_t
character_length(const unsigned char *at, size_t left)
{
	size_t length, i;

	if (at[0] < 0x80)
		return 1;
	length = at[0] >= 0xc2 && at[0] < 0xe0 ? 2
	    : (at[0] & 0xf0) == 0xe0           ? 3
	    : at[0] >= 0xf0 && at[0] < 0xf5    ? 4
					       : 0;
	if (length > left)
		return 0;
	for (i = 1; i < length; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	}
	/* Longer than needed, surrogates, and above U+10FFFF. */
	if ((at[0] == 0xe0 && at[1] < 0xa0) ||
	    (at[0] == 0xed && at[1] >= 0xa0) ||
	    (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))
		return 0;
	return length;
}

static bool
is_utf8(const char *bytes, size_t length)
{
	size_t at, more;

	for (at = 0; at < length; at += more) {
		more = character_length(
		    (const unsigned char *)bytes + at, length - at);
		if (more == 0)
			return false;
	}
	return true;
}

void
json_text(FILE *out, const char *bytes, size_t length)
{
	const unsigned char *at = (const unsigned char *)bytes;
	const unsigned char *end = at + length;
	size_t more;

	(void)fputc('"', out);
	for (; at < end; at += more) {
		more = character_length(at, (size_t)(end - at));
		if (more == 0) {
			(void)fputs("\xef\xbf\xbd", out);
			more = 1;
		} else if (*at < 0x20 || *at == '"' || *at == '\\') {
			(void)fprintf(out, "\\u%04x", *at);
		} else {
			(void)fwrite(at, 1, more, out);
		}
	}
	(void)fputc('"', out);
}

void
json_id(FILE *out, const char *bytes, size_t length)
{
	static const char fine[] = "abcdefghijklmnopqrstuvwxyz"
				   "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
	size_t i;

	(void)fputc('"', out);
	for (i = 0; i < length; i++) {
		if (bytes[i] != '\0' && strchr(fine, bytes[i]) != NULL)
			(void)fputc(bytes[i], out);
		else
			(void)fprintf(out, "%%%02X", (unsigned char)bytes[i]);
	}
	(void)fputc('"', out);
}

static void
json_base64(FILE *out, const char *bytes, size_t length)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t at, i;

	(void)fputc('"', out);
	for (at = 0; at < length; at += 3) {
		unsigned bits = 0;

		for (i = 0; i < 3; i++)
			bits = bits << 8 |
			    (at + i < length ? (unsigned char)bytes[at + i]
					     : 0u);
		for (i = 0; i < 4; i++)
			(void)fputc(at + i <= length
				? digits[bits >> (18 - 6 * i) & 63]
				: '=',
			    out);
	}
	(void)fputc('"', out);
}

void
json_member(FILE *out, const char *name, const redisReply *value)
{
	if (value->type == REDIS_REPLY_INTEGER) {
		(void)fprintf(out, "\"%s\":%lld", name, value->integer);
	} else if (value->type != REDIS_REPLY_STRING) {
		(void)fprintf(out, "\"%s\":null", name);
	} else if (is_utf8(value->str, value->len)) {
		(void)fprintf(out, "\"%s\":", name);
		json_text(out, value->str, value->len);
	} else {
		(void)fprintf(out, "\"%s-base64\":", name);
		json_base64(out, value->str, value->len);
	}
}

void
json_members(FILE *out, const redisReply *pairs)
{
	size_t i;

	for (i = 0; i + 1 < pairs->elements; i += 2) {
		if (i > 0)
			(void)fputc(',', out);
		json_member(out, pairs->element[i]->str, pairs->element[i + 1]);
	}
}
