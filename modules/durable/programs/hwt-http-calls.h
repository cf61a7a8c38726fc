/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of hwt-http: one thread makes them, with libcurl's multi interface
 * and epoll, and says with hwt_durable_finish how each has ended.
 */
#ifndef HWT_DURABLE_HTTP_CALLS_H
#define HWT_DURABLE_HTTP_CALLS_H

#include "hwt-http-address.h"
#include "hwt-http-request.h"

struct call_options {
	struct address_rules *rules;
	const struct secrets *secrets;
	uint64_t limit_ms; /* of a call with its redirects */
	uint64_t connect_ms; /* of a connection, the name's look-up too */
	uint64_t retry_after_max_s;
	size_t answer_max, headers_max; /* bytes that are read */
	uint32_t concurrency, per_host, redirects;
	const char *proxy; /* NULL: none */
	const char *ca_file; /* NULL: the system's */
};

struct calls;

/* Starts the thread, which blocks all signals. 0, or an errno value. The
 * options must outlive it. */
int calls_start(struct calls **started, const struct call_options *options);

/* hwt_durable_callback; ctx is the calls. */
int calls_add(void *ctx, const struct hwt_durable_delivery *delivery);

/* What has not begun, or is added from now on, is released; ctx is the calls.
 */
void calls_release(void *ctx);

/* Breaks off what is under way, and frees. No callback runs any more. */
void calls_end(struct calls *calls);

#endif
