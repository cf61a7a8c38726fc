/* SPDX-License-Identifier: Apache-2.0 */
#include "modules/durable/server/request.h"

#include <string.h>

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
	const char *line =
	    *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
	struct argument digits;

	if (*at < end && **at != mark)
		return WRONG;
	if (line == NULL)
		return end - *at > 32 ? WRONG : INCOMPLETE;
	digits = (struct argument){*at + 1, (size_t)(line - *at) - 2};
	if (line - *at < 3 || line[-1] != '\r' ||
	    !argument_number(&digits, 0, most, number))
		return WRONG;
	*at = line + 1;
	return COMPLETE;
}

/* Of one that is incomplete, the length becomes what is missing, at least. */
static enum parsed
parse_word(struct argument *word, const char **at, const char *end)
{
	uint64_t length;
	enum parsed parsed =
	    parse_number(at, end, '$', REQUEST_WORD_MAX, &length);

	word->length = 1;
	if (parsed != COMPLETE)
		return parsed;
	word->length = length + 2 - (size_t)(end - *at);
	if ((uint64_t)(end - *at) < length + 2)
		return INCOMPLETE;
	*word = (struct argument){*at, length};
	*at += length + 2;
	return (*at)[-2] == '\r' && (*at)[-1] == '\n' ? COMPLETE : WRONG;
}

long
request_parse(struct request *request, const char *bytes, size_t length,
    const char **error)
{
	const char *at = bytes;
	const char *end = bytes + length;
	uint64_t count = 0;
	enum parsed parsed;
	size_t i;

	request->count = 0;
	request->need = length + 1;
	if (length == 0)
		return 0;
	/* redis-cli --pipe sends an empty line before its last request. */
	if (length >= 2 && bytes[0] == '\r' && bytes[1] == '\n')
		return 2;
	parsed = parse_number(&at, end, '*', REQUEST_WORDS_MAX, &count);
	for (i = 0; i < count && parsed == COMPLETE; i++)
		parsed = parse_word(&request->word[i], &at, end);
	request->count = count;
	if (parsed == COMPLETE)
		return at - bytes;
	/* So bytes that come one by one are not parsed again for each. */
	if (count > 0)
		request->need =
		    length + request->word[i - 1].length + 6 * (count - i);
	*error = "ERR this is no request, or one with too many or too long "
		 "words";
	return parsed == INCOMPLETE && length < REQUEST_BYTES_MAX ? 0 : -1;
}

bool
secret_is(const char *secret, const char *given, size_t length)
{
	size_t own = strlen(secret), i;
	unsigned char differ = own != length;

	for (i = 0; i < length; i++)
		differ |= (unsigned char)(given[i] ^ secret[i < own ? i : 0]);
	return !differ;
}
