/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A parser of just these lines. A string is decoded where it stands, which
 * never makes it longer, and ends with 0 in the place of its last quote.
 */
#include "lines.h"

#include <string.h>

#include "modules/durable/durable.h"
#include "text.h"

enum member {
	MEMBER_ID,
	MEMBER_QUEUE,
	MEMBER_IN,
	MEMBER_AT,
	MEMBER_ATTEMPTS,
	MEMBER_PAYLOAD
};

struct reader {
	char *at, *end;
	const char *error; /* the first one */
	unsigned seen; /* a bit for each member */
	struct hwt_durable_task *task;
};

struct slice {
	char *text;
	size_t length;
};

static bool
fail(struct reader *reader, const char *error)
{
	if (reader->error == NULL)
		reader->error = error;
	return false;
}

static void
skip_blanks(struct reader *reader)
{
	while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) &&
	    *reader->at != '\0')
		reader->at++;
}

static bool
read_sign(struct reader *reader, char sign, const char *error)
{
	skip_blanks(reader);
	if (reader->at == reader->end || *reader->at != sign)
		return fail(reader, error);
	reader->at++;
	return true;
}

static bool
read_hex(struct reader *reader, uint32_t *unit)
{
	static const char digits[] = "0123456789abcdef";
	const char *digit;
	int i;

	*unit = 0;
	for (i = 0; i < 4; i++, reader->at++) {
		if (reader->at == reader->end || *reader->at == '\0')
			return fail(reader, "\\u without four digits");
		digit = strchr(digits,
		    *reader->at >= 'A' && *reader->at <= 'F'
			? *reader->at + ('a' - 'A')
			: *reader->at);
		if (digit == NULL)
			return fail(reader, "\\u without four digits");
		*unit = *unit << 4 | (uint32_t)(digit - digits);
	}
	return true;
}

static char *
put_character(char *to, uint32_t code)
{
	if (code < 0x80) {
		*to++ = (char)code;
		return to;
	}
	if (code < 0x800) {
		*to++ = (char)(0xc0 | code >> 6);
	} else {
		if (code < 0x10000) {
			*to++ = (char)(0xe0 | code >> 12);
		} else {
			*to++ = (char)(0xf0 | code >> 18);
			*to++ = (char)(0x80 | (code >> 12 & 0x3f));
		}
		*to++ = (char)(0x80 | (code >> 6 & 0x3f));
	}
	*to++ = (char)(0x80 | (code & 0x3f));
	return to;
}

/* After "\u". */
static bool
read_unicode(struct reader *reader, char **to)
{
	uint32_t code, low;

	if (!read_hex(reader, &code))
		return false;
	if (code >= 0xd800 && code < 0xe000) {
		if (code >= 0xdc00 || reader->end - reader->at < 6 ||
		    reader->at[0] != '\\' || reader->at[1] != 'u')
			return fail(reader, "half of a surrogate pair");
		reader->at += 2;
		if (!read_hex(reader, &low))
			return false;
		if (low < 0xdc00 || low >= 0xe000)
			return fail(reader, "half of a surrogate pair");
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	*to = put_character(*to, code);
	return true;
}

/* After a backslash. */
static bool
read_escape(struct reader *reader, char **to)
{
	static const char escapes[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char *escape;
	char sign;

	if (reader->at == reader->end)
		return fail(reader, "a string without an end");
	sign = *reader->at++;
	if (sign == 'u')
		return read_unicode(reader, to);
	escape = sign == '\0' ? NULL : strchr(escapes, sign);
	if (escape == NULL)
		return fail(reader, "no such escape in a string");
	*(*to)++ = meanings[escape - escapes];
	return true;
}

static bool
read_string(struct reader *reader, struct slice *slice)
{
	size_t count;
	char *to;

	if (!read_sign(reader, '"', "want a string"))
		return false;
	for (to = slice->text = reader->at;;) {
		if (reader->at == reader->end)
			return fail(reader, "a string without an end");
		if (*reader->at == '"')
			break;
		if (*reader->at == '\\') {
			reader->at++;
			if (!read_escape(reader, &to))
				return false;
			continue;
		}
		if ((unsigned char)*reader->at < 0x20)
			return fail(reader, "a control character in a string");
		count = text_character(
		    reader->at, (size_t)(reader->end - reader->at));
		if (count == 0)
			return fail(reader, "a string that is not UTF-8");
		memmove(to, reader->at, count);
		to += count;
		reader->at += count;
	}
	reader->at++;
	*to = '\0';
	slice->length = (size_t)(to - slice->text);
	return true;
}

static bool
read_seconds(struct reader *reader, uint64_t *ns)
{
	char *start;

	skip_blanks(reader);
	start = reader->at;
	while (reader->at < reader->end && *reader->at != '\0' &&
	    strchr("0123456789.+-eE", *reader->at) != NULL)
		reader->at++;
	if (reader->at - start > 1 && start[0] == '0' && start[1] != '.')
		return fail(reader, "a number that begins with 0");
	if (!text_seconds(start, (size_t)(reader->at - start), ns))
		return fail(
		    reader, "want seconds, as 90 or 0.25, without an exponent");
	return true;
}

static bool
read_bytes(struct reader *reader, bool base64, struct slice *slice)
{
	if (!read_string(reader, slice))
		return false;
	if (base64 && !base64_decode(slice->text, &slice->length))
		return fail(reader, "that is no base64");
	return true;
}

static bool
read_id(struct reader *reader, bool base64)
{
	struct slice slice;

	if (!read_bytes(reader, base64, &slice))
		return false;
	if (slice.length < 1 || slice.length > HWT_DURABLE_ID_MAX)
		return fail(reader, "\"id\" has 1 to 64 bytes");
	reader->task->id = slice.text;
	reader->task->id_length = slice.length;
	return true;
}

static bool
read_payload(struct reader *reader, bool base64)
{
	struct slice slice;

	if (!read_bytes(reader, base64, &slice))
		return false;
	if (slice.length > HWT_DURABLE_PAYLOAD_MAX)
		return fail(reader, "\"payload\" has at most 65536 bytes");
	reader->task->payload = slice.length > 0 ? slice.text : NULL;
	reader->task->payload_length = slice.length;
	return true;
}

static bool
read_queue(struct reader *reader)
{
	struct slice slice;

	if (!read_string(reader, &slice))
		return false;
	if (strlen(slice.text) != slice.length ||
	    !name_is_valid(slice.text, HWT_DURABLE_QUEUE_MAX))
		return fail(
		    reader, "\"queue\" has 1 to 64 of A-Z a-z 0-9 . _ -");
	reader->task->queue = slice.text;
	return true;
}

static bool
read_attempts(struct reader *reader)
{
	uint64_t ns;

	if (!read_seconds(reader, &ns))
		return false;
	if (ns % HWT_SEC(1) != 0 || ns < HWT_SEC(1) ||
	    ns > HWT_SEC(HWT_DURABLE_ATTEMPTS_MAX))
		return fail(reader, "\"attempts\" is 1 to 1000");
	reader->task->max_attempts = (uint32_t)(ns / HWT_SEC(1));
	return true;
}

static bool
read_value(struct reader *reader, enum member member, bool base64)
{
	switch (member) {
	case MEMBER_ID:
		return read_id(reader, base64);
	case MEMBER_QUEUE:
		return read_queue(reader);
	case MEMBER_IN:
		if (!read_seconds(reader, &reader->task->delay_ns))
			return false;
		return reader->task->delay_ns <= HWT_DURABLE_DELAY_MAX ||
		    fail(reader, "\"in\" is at most 10 years");
	case MEMBER_AT:
		reader->task->flags |= HWT_DURABLE_AT;
		return read_seconds(reader, &reader->task->due_unix_ns);
	case MEMBER_ATTEMPTS:
		return read_attempts(reader);
	case MEMBER_PAYLOAD:
	default:
		return read_payload(reader, base64);
	}
}

static bool
read_member(struct reader *reader)
{
	static const struct {
		const char *name;
		enum member member;
		bool base64;
	} members[] = {
	    {"id", MEMBER_ID, false},
	    {"id_base64", MEMBER_ID, true},
	    {"queue", MEMBER_QUEUE, false},
	    {"in", MEMBER_IN, false},
	    {"at", MEMBER_AT, false},
	    {"attempts", MEMBER_ATTEMPTS, false},
	    {"payload", MEMBER_PAYLOAD, false},
	    {"payload_base64", MEMBER_PAYLOAD, true},
	};
	struct slice name;
	size_t i;

	if (!read_string(reader, &name) ||
	    !read_sign(reader, ':', "want a colon"))
		return false;
	for (i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
		if (strlen(members[i].name) != name.length ||
		    memcmp(members[i].name, name.text, name.length) != 0)
			continue;
		if ((reader->seen & 1u << members[i].member) != 0)
			return fail(reader, "a member is given twice");
		reader->seen |= 1u << members[i].member;
		return read_value(reader, members[i].member, members[i].base64);
	}
	return fail(reader, "a member that is not known");
}

static bool
read_object(struct reader *reader)
{
	if (!read_sign(reader, '{', "want an object: {\"queue\":...}"))
		return false;
	skip_blanks(reader);
	if (reader->at < reader->end && *reader->at == '}') {
		reader->at++;
		return true;
	}
	for (;;) {
		if (!read_member(reader))
			return false;
		skip_blanks(reader);
		if (reader->at == reader->end || *reader->at != ',')
			break;
		reader->at++;
	}
	return read_sign(reader, '}', "want a comma or a brace");
}

const char *
line_parse(char *line, size_t length, struct hwt_durable_task *task)
{
	struct reader reader = {.at = line, .end = line + length, .task = task};
	unsigned times = 1u << MEMBER_IN | 1u << MEMBER_AT;

	*task = (struct hwt_durable_task){0};
	if (!read_object(&reader))
		return reader.error;
	skip_blanks(&reader);
	if (reader.at < reader.end)
		return "something follows the object";
	if ((reader.seen & 1u << MEMBER_QUEUE) == 0)
		return "there is no \"queue\"";
	if ((reader.seen & times) == 0 || (reader.seen & times) == times)
		return "there is not just one of \"in\" and \"at\"";
	return NULL;
}
