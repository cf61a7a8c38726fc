/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <string.h>

#include "modules/durable/hwt_durable.h"
#include "observe/utf8.h"

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool
text_number(const char *text, uint64_t min, uint64_t max, uint64_t *number)
{
	uint64_t value = 0;
	size_t i;

	for (i = 0; is_digit(text[i]); i++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(
			value, (uint64_t)(text[i] - '0'), &value))
			return false;
	}
	if (i == 0 || text[i] != '\0' || value < min || value > max)
		return false;
	*number = value;
	return true;
}

bool
text_seconds(const char *text, size_t length, uint64_t *ns)
{
	size_t i, fraction = 0;
	bool point = false;
	uint64_t value = 0;

	for (i = 0; i < length; i++) {
		if (text[i] == '.' && !point && i > 0) {
			point = true;
			continue;
		}
		if (!is_digit(text[i]) || fraction == 9 ||
		    value > UINT64_MAX / 2 / 10)
			return false;
		value = value * 10 + (uint64_t)(text[i] - '0');
		fraction += point;
	}
	if (length == 0 || (point && fraction == 0))
		return false;
	for (; fraction < 9; fraction++) {
		if (value > UINT64_MAX / 2 / 10)
			return false;
		value *= 10;
	}
	*ns = value;
	return true;
}

/* Of one byte, or of two: U+0080 to U+009F. */
static bool
is_control(const char *text, size_t count)
{
	const unsigned char *byte = (const unsigned char *)text;

	return (count == 1 && (byte[0] < 0x20 || byte[0] == 0x7f)) ||
	    (count == 2 && byte[0] == 0xc2 && byte[1] < 0xa0);
}

void
text_write(FILE *file, const char *text, size_t length)
{
	size_t at, count;

	for (at = 0; at < length; at += count) {
		count = utf8_length(text + at, length - at);
		if (count > 0 && !is_control(text + at, count)) {
			(void)fwrite(text + at, 1, count, file);
			continue;
		}
		(void)fprintf(file, "\\x%02x", (unsigned char)text[at]);
		count = 1;
	}
}

static const char digits64[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static bool
is_base64(const char *text, size_t length, size_t padding)
{
	size_t i;

	if (length % 4 != 0)
		return false;
	for (i = 0; i < length - padding; i++) {
		if (text[i] == '\0' || strchr(digits64, text[i]) == NULL)
			return false;
	}
	return true;
}

bool
base64_decode(char *text, size_t *length)
{
	size_t padding = 0, from, to = 0;
	uint32_t bits = 0;
	char digit;

	while (padding < 2 && padding < *length &&
	    text[*length - 1 - padding] == '=')
		padding++;
	if (!is_base64(text, *length, padding))
		return false;
	for (from = 0; from < *length; from++) {
		digit = text[from];
		if (digit == '=')
			digit = 'A';
		bits =
		    bits << 6 | (uint32_t)(strchr(digits64, digit) - digits64);
		if (from % 4 != 3)
			continue;
		text[to++] = (char)(bits >> 16);
		text[to++] = (char)(bits >> 8);
		text[to++] = (char)bits;
	}
	/* The bits that nothing needs are 0, so that each text has one form. */
	if (padding > 0 && (bits & (padding == 1 ? 0xffu : 0xffffu)) != 0)
		return false;
	*length = to - padding;
	return true;
}

void
base64_write(FILE *file, const char *text, size_t length)
{
	const unsigned char *byte = (const unsigned char *)text;
	uint32_t bits;
	size_t i;

	for (i = 0; i < length; i += 3) {
		bits = (uint32_t)byte[i] << 16;
		if (i + 1 < length)
			bits |= (uint32_t)byte[i + 1] << 8;
		if (i + 2 < length)
			bits |= byte[i + 2];
		(void)fputc(digits64[bits >> 18], file);
		(void)fputc(digits64[bits >> 12 & 63], file);
		(void)fputc(
		    i + 1 < length ? digits64[bits >> 6 & 63] : '=', file);
		(void)fputc(i + 2 < length ? digits64[bits & 63] : '=', file);
	}
}

static bool
is_utf8(const char *text, size_t length)
{
	size_t at, count;

	for (at = 0; at < length; at += count) {
		count = utf8_length(text + at, length - at);
		if (count == 0)
			return false;
	}
	return true;
}

static void
json_character(FILE *file, const char *text, size_t count)
{
	if (is_control(text, count))
		(void)fprintf(file, "\\u%04x", (unsigned char)text[count - 1]);
	else if (count == 1 && (text[0] == '"' || text[0] == '\\'))
		(void)fprintf(file, "\\%c", text[0]);
	else
		(void)fwrite(text, 1, count, file);
}

void
json_write(FILE *file, const char *key, const char *text, size_t length)
{
	size_t at, count;

	if (!is_utf8(text, length)) {
		(void)fprintf(file, "\"%s_base64\":\"", key);
		base64_write(file, text, length);
		(void)fputc('"', file);
		return;
	}
	(void)fprintf(file, "\"%s\":\"", key);
	for (at = 0; at < length; at += count) {
		count = utf8_length(text + at, length - at);
		json_character(file, text + at, count);
	}
	(void)fputc('"', file);
}

void
priority_write(FILE *file, uint64_t flags)
{
	if ((flags & (HWT_DURABLE_HIGH | HWT_DURABLE_LOW)) != 0)
		(void)fprintf(file, ",\"priority\":\"%s\"",
		    (flags & HWT_DURABLE_HIGH) != 0 ? "high" : "low");
}
