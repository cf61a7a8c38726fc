/* SPDX-License-Identifier: Apache-2.0 */
/* Writing text to a FILE, with one error for all of it. See page.c. */
#ifndef HWT_PAGE_H
#define HWT_PAGE_H

#include <stdio.h>

struct page {
	FILE *file;
	int error; /* of the first write that failed; nothing follows it */
};

__attribute__((format(printf, 2, 3))) void page_print(
    struct page *page, const char *format, ...);

/* Flushes, so that an error of the file is known. 0 or the error. */
int page_end(struct page *page);

#endif
