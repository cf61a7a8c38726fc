/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing text to a FILE. No number in it depends on the locale: formats are
 * those of whole numbers.
 */
#include <errno.h>
#include <stdarg.h>

#include "observe/page.h"

static int
write_error(void)
{
	return errno != 0 ? -errno : -EIO;
}

void
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

int
page_end(struct page *page)
{
	int kept = errno;

	errno = 0;
	if (page->error == 0 && fflush(page->file) != 0)
		page->error = write_error();
	errno = kept;
	return page->error;
}
