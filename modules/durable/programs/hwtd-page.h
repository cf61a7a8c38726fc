/* SPDX-License-Identifier: Apache-2.0 */
/* The page that shows a space in a browser. It has no data of it: that comes
 * from below /v1, for who may ask. */
#ifndef HWT_DURABLE_HWTD_PAGE_H
#define HWT_DURABLE_HWTD_PAGE_H

#include <stdbool.h>

#include "hwtd-api.h"

/* Whether a path is one of its files. */
bool page_has(const char *path);
void page_answer(struct api *api);

#endif
