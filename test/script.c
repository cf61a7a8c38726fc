/* SPDX-License-Identifier: Apache-2.0 */
/* Implements script.h. */
#include "test/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local const char *script_at;
const char *const *script_names;

static void
wrong(const char *what, const char *at)
{
	(void)fprintf(stderr, "script: %s: %s\n", what, at);
	abort();
}

static const struct verb *
verb_of(const char *word, size_t length, const struct verb *verb)
{
	do {
		for (; verb->word != NULL; verb++) {
			if (strncmp(verb->word, word, length) == 0 &&
			    verb->word[length] == 0)
				return verb;
		}
		verb = verb->more;
	} while (verb != NULL);
	wrong("no verb", word);
	return NULL;
}

/* A number, or the name of one; at is moved past it. */
static unsigned
number_read(const char **at)
{
	const char *word = *at + strspn(*at, " ");
	size_t length = strcspn(word, " ,|");
	const char *const *name = script_names;
	char *end;
	unsigned number = (unsigned)strtoul(word, &end, 10);

	*at = word + length;
	if (end != word)
		return number;
	for (; name != NULL && *name != NULL; name++) {
		if (strlen(*name) == length &&
		    strncmp(*name, word, length) == 0)
			return (unsigned)(name - script_names);
	}
	wrong("a number is missing", script_at);
	return 0;
}

const char *
script_part(const char *script, unsigned part)
{
	for (; part > 0 && script != NULL; part--) {
		script = strchr(script, '|');
		if (script != NULL)
			script += strspn(script, "| ");
	}
	return script;
}

static void
verb_run(const struct verb *verb, const unsigned *number)
{
	if (verb->alone != NULL)
		verb->alone();
	else if (verb->of != NULL)
		verb->of(number[0]);
	else if (verb->two != NULL)
		verb->two(number[0], number[1]);
	else
		verb->three(number[0], number[1], number[2]);
}

void
script_run(const char *script, const struct verb *verbs)
{
	const struct verb *verb;
	unsigned number[3], i, count;
	size_t length;

	while (script != NULL && *script != 0 && *script != '|') {
		script_at = script;
		length = strcspn(script, " ,|");
		verb = verb_of(script, length, verbs);
		script += length;
		count = verb->of != NULL  ? 1
		    : verb->two != NULL   ? 2
		    : verb->three != NULL ? 3
					  : 0;
		for (i = 0; i < count; i++)
			number[i] = number_read(&script);
		verb_run(verb, number);
		script += strspn(script, ", ");
	}
}
