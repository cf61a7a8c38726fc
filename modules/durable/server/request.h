/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in Redis' protocol: an array of byte strings. A line of words is
 * none, so that nothing that a browser sends as HTTP is run.
 * Nothing is allocated for what a client only announces, and everything has a
 * bound.
 */
#ifndef HWT_DURABLE_REQUEST_H
#define HWT_DURABLE_REQUEST_H

#include "modules/durable/machine/command.h"

#define REQUEST_WORDS_MAX (3 * MACHINE_TASKS_MAX + 64)
#define REQUEST_WORD_MAX ((size_t)(1 << 20) + 64)
#define REQUEST_BYTES_MAX ((size_t)80 << 20)

struct request {
	/* Of one that is not complete: how many bytes it has, at least. A word
	 * has 6. */
	size_t need;
	size_t count;
	struct argument word[REQUEST_WORDS_MAX]; /* in the bytes parsed */
};

/* Parses the request at the beginning. Returns how many bytes it has; 0: it is
 * not complete yet; -1: it is none, and *error says why. */
long request_parse(struct request *request, const char *bytes, size_t length,
    const char **error);

/* Whether a secret was given: in a time that does not depend on where they
 * differ. */
bool secret_is(const char *secret, const char *given, size_t length);

#endif
