/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server tells of its timer, to whoever watches it:
 *
 *   /_timer       a page that draws what follows
 *   /_timer.json  the statistics
 *   /metrics      the same, for Prometheus
 */
#ifndef EXAMPLES_WATCH_H
#define EXAMPLES_WATCH_H

#include "http.h"
#include "hwt.h"

/*
 * Answers a request for one of these; false when it is for something else. The
 * connection ends after the answer, so that a browser that watches is not among
 * the clients that the server is judged by.
 */
bool watch_answer(struct http_answer *answer, struct http_request *request,
    const struct hwt *timer);

#endif
