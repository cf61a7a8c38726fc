/* SPDX-License-Identifier: Apache-2.0 */
/* Writing text to a FILE, with one error for all of it. No number depends on
 * the locale: only whole numbers are formatted. */
#ifndef HWT_PAGE_H
#define HWT_PAGE_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

struct page {
	FILE *file;
	int error; /* of the first write that failed; nothing follows it */
};

static inline int
write_error(void)
{
	return errno != 0 ? -errno : -EIO;
}

__attribute__((format(printf, 2, 3))) static inline void
page_print(struct page *page, const char *format, ...)
{
	int kept = errno;
	va_list arguments;

	if (page->error != 0)
		return;
	errno = 0;
	va_start(arguments, format);
	if (vfprintf(page->file, format, arguments) < 0)
		page->error = write_error();
	va_end(arguments);
	errno = kept;
}

/* Flushes, so that an error of the file is known. 0 or the error. */
static inline int
page_end(struct page *page)
{
	int kept = errno;

	errno = 0;
	if (page->error == 0 && fflush(page->file) != 0)
		page->error = write_error();
	errno = kept;
	return page->error;
}

#endif
