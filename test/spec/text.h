/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of text that the library or a module has written. Who
 * includes this defines _GNU_SOURCE. */
#ifndef HWT_TEST_TEXT_H
#define HWT_TEST_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text_written;
static size_t text_bytes;

static inline FILE *
text_begin(void)
{
	FILE *file = open_memstream(&text_written, &text_bytes);

	cr_assert(file != NULL);
	return file;
}

static inline char *
text_end(FILE *file)
{
	fclose(file);
	return text_written;
}

/* The text that the call writes to file, for the caller to free. */
#define TEXT_OF(call)                      \
	({                                 \
		FILE *file = text_begin(); \
                                           \
		assert_rc((call), 0);      \
		text_end(file);            \
	})

static inline unsigned
count_of(const char *text, const char *part)
{
	unsigned count = 0;

	for (; (text = strstr(text, part)) != NULL; text += strlen(part))
		count++;
	return count;
}

#endif
