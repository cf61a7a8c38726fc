/* SPDX-License-Identifier: Apache-2.0 */
/* Characters in UTF-8: the table of well-formed sequences in chapter 3 of
 * Unicode. */
#ifndef HWT_UTF8_H
#define HWT_UTF8_H

#include <stddef.h>

/* How many bytes the character has that stands there; 0: none does. bytes: how
 * many there are, at least 1. A zero after the text ends it as well. */
static inline size_t
utf8_length(const char *text, size_t bytes)
{
	const unsigned char *byte = (const void *)text;
	unsigned char low = 0x80, high = 0xbf;
	size_t length, i;

	if (byte[0] < 0x80)
		return 1;
	if (byte[0] < 0xc2 || byte[0] > 0xf4)
		return 0;
	length = byte[0] < 0xe0 ? 2 : byte[0] < 0xf0 ? 3 : 4;
	if (byte[0] == 0xe0)
		low = 0xa0; /* a longer form than needed */
	else if (byte[0] == 0xed)
		high = 0x9f; /* half of a pair of UTF-16 */
	else if (byte[0] == 0xf0)
		low = 0x90;
	else if (byte[0] == 0xf4)
		high = 0x8f; /* beyond the last character */
	if (bytes < length)
		return 0;
	for (i = 1; i < length; i++) {
		if (byte[i] < low || byte[i] > high)
			return 0;
		low = 0x80;
		high = 0xbf;
	}
	return length;
}

#endif
