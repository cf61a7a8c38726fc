/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 2, a timer queue: a list in the order of deadlines, searched from the
 * front. */
#define BUCKETS 1
#define LINK record_link_sorted
#define EXPIRE list_expire_sorted
#include "perf/schemes/lists.h"

const struct scheme scheme = {.what = "scheme 2, an ordered list",
    .start_cost = "O(n)",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)",
    LISTS};
