/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 5, a hashed wheel whose buckets are lists in the order of deadlines:
 * constant time while there are no more timers than buckets. */
#define BUCKETS HASHED_BUCKETS
#define LINK record_link_sorted
#define EXPIRE list_expire_sorted
#include "perf/schemes/lists.h"

const struct scheme scheme = {
    .what = "scheme 5, a hashed wheel, buckets sorted",
    .start_cost = "O(1)avg|O(n)worst",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)",
    LISTS};
