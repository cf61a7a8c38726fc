/* SPDX-License-Identifier: Apache-2.0 */
/* What script.h describes. */
#include "test/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Thread_local const char *script_at;

static void
wrong(const char *what, const char *at)
{
	(void)fprintf(stderr, "script: %s: %s\n", what, at);
	abort();
}

static const struct verb *
verb_of(const char *word, size_t length, const struct verb *verb)
{
	for (; verb->word != NULL; verb++) {
		if (strncmp(verb->word, word, length) == 0 &&
		    verb->word[length] == 0)
			return verb;
	}
	wrong("no verb", word);
	return NULL;
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

static const char *
number_read(const char *at, unsigned *number)
{
	char *end;

	*number = (unsigned)strtoul(at, &end, 10);
	if (end == at)
		wrong("a number is missing", at);
	return end;
}

void
script_run(const char *script, const struct verb *verbs)
{
	const struct verb *verb;
	unsigned first = 0, second = 0;
	size_t length;

	while (script != NULL && *script != 0 && *script != '|') {
		script_at = script;
		length = strcspn(script, " ,|");
		verb = verb_of(script, length, verbs);
		script += length;
		if (verb->alone == NULL)
			script = number_read(script, &first);
		if (verb->two != NULL)
			script = number_read(script, &second);
		if (verb->alone != NULL)
			verb->alone();
		else if (verb->two != NULL)
			verb->two(first, second);
		else
			verb->of(first);
		script += strspn(script, ", ");
	}
}
