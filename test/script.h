/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs in words. A script is a list of calls, "hold 0, cancel 1, fire":
 * each a word of a table and up to three numbers. With a bar between them,
 * "release 0 | fire", it has parts, one for each thread. Numbers can have
 * names.
 */
#ifndef SCRIPT_H
#define SCRIPT_H

struct verb {
	const char *word;
	/* One of these. */
	void (*alone)(void);
	void (*of)(unsigned number);
	void (*two)(unsigned first, unsigned second);
	void (*three)(unsigned first, unsigned second, unsigned third);
	/* The last entry, which has no word: NULL, or another table. */
	const struct verb *more;
};

/* The names of 0, 1, ...; the last is NULL. None, unless a program sets it. */
extern const char *const *script_names;

/* The command of a script that runs, and the rest: for failures. */
extern _Thread_local const char *script_at;

/* NULL: it has fewer. */
const char *script_part(const char *script, unsigned part);
/* Up to the end of the part; NULL: nothing. */
void script_run(const char *script, const struct verb *verbs);

#endif
