/* SPDX-License-Identifier: Apache-2.0 */
/* Scheme 6, a hashed wheel whose buckets are lists without order: what is of a
 * later round is passed over, a look at each record. Deadlines stand for
 * counts of rounds, so that passing over writes nothing. */
#define BUCKETS HASHED_BUCKETS
#define LINK record_link
#define EXPIRE list_expire
#include "perf/schemes/lists.h"

const struct scheme scheme = {
    .what = "scheme 6, a hashed wheel, buckets unsorted",
    .start_cost = "O(1)",
    .stop_cost = "O(1)",
    .tick_cost = "O(1)avg|O(n)worst",
    LISTS};
