/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 1, straightforward: a list without order, looked through as a whole at
 * each tick. */
#define BUCKETS 1
#define LINK record_link
#define EXPIRE list_expire
#include "perf/schemes/lists.h"

const struct scheme scheme = {.what = "scheme 1, an unordered list",
    .start_cost = "O(1)",
    .stop_cost = "O(1)",
    .tick_cost = "O(n)",
    LISTS};
