/* SPDX-License-Identifier: Apache-2.0 */
#include "modules/durable/server/request.h"

#include <string.h>

/* Where a line ends, without its end; NULL: not here yet. */
static const char *
line_end(const char *at, const char *end)
{
	const char *line = memchr(at, '\n', (size_t)(end - at));

	if (line == NULL)
		return NULL;
	return line > at && line[-1] == '\r' ? line - 1 : line;
}

static const char *
after_line(const char *end)
{
	return *end == '\r' ? end + 2 : end + 1;
}

enum parsed {
	COMPLETE,
	INCOMPLETE,
	WRONG
};

/* A line of a mark and a number. */
static enum parsed
parse_number(const char **at, const char *end, char mark, uint64_t most,
    uint64_t *number)
{
	const char *line = line_end(*at, end);
	struct argument digits;

	if (line == NULL)
		return end - *at > 32 ? WRONG : INCOMPLETE;
	digits = (struct argument){*at + 1, (size_t)(line - *at) - 1};
	if (line == *at || **at != mark ||
	    !argument_number(&digits, 0, most, number))
		return WRONG;
	*at = after_line(line);
	return COMPLETE;
}

static enum parsed
parse_word(struct argument *word, const char **at, const char *end)
{
	uint64_t length;
	enum parsed parsed =
	    parse_number(at, end, '$', REQUEST_WORD_MAX, &length);

	if (parsed != COMPLETE)
		return parsed;
	if ((uint64_t)(end - *at) < length + 2)
		return INCOMPLETE;
	*word = (struct argument){*at, length};
	*at += length;
	if ((*at)[0] != '\r' || (*at)[1] != '\n')
		return WRONG;
	*at += 2;
	return COMPLETE;
}

static enum parsed
parse_array(struct request *request, const char **at, const char *end)
{
	uint64_t count;
	enum parsed parsed =
	    parse_number(at, end, '*', REQUEST_WORDS_MAX, &count);
	size_t i;

	for (i = 0; i < count && parsed == COMPLETE; i++)
		parsed = parse_word(&request->word[i], at, end);
	request->count = count;
	return parsed;
}

static enum parsed
parse_line(struct request *request, const char **at, const char *end)
{
	const char *line = line_end(*at, end);
	const char *word;

	if (line == NULL)
		return end - *at > REQUEST_LINE_MAX ? WRONG : INCOMPLETE;
	request->count = 0;
	while (*at < line) {
		if (**at == ' ' || **at == '\t') {
			++*at;
			continue;
		}
		word = *at;
		while (*at < line && **at != ' ' && **at != '\t')
			++*at;
		if (request->count == REQUEST_WORDS_MAX)
			return WRONG;
		request->word[request->count++] =
		    (struct argument){word, (size_t)(*at - word)};
	}
	*at = after_line(line);
	return COMPLETE;
}

long
request_parse(struct request *request, const char *bytes, size_t length,
    const char **error)
{
	const char *at = bytes;
	const char *end = bytes + length;
	enum parsed parsed;

	if (length == 0)
		return 0;
	parsed = *at == '*' ? parse_array(request, &at, end)
			    : parse_line(request, &at, end);
	if (parsed == COMPLETE)
		return at - bytes;
	*error = "ERR this is no request, or one with too many or too long "
		 "words";
	if (parsed == INCOMPLETE && length < REQUEST_BYTES_MAX)
		return 0;
	return -1;
}
