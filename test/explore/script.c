/* SPDX-License-Identifier: Apache-2.0 */
/* What script.h describes. */
#include "script.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "explore.h"

static const struct verb *
verb_of(const char *word, size_t length, const struct verb *verb)
{
	for (; verb->word != NULL; verb++) {
		if (strncmp(verb->word, word, length) == 0 &&
		    verb->word[length] == 0)
			return verb;
	}
	explore_fail("no verb: %s", word);
	abort();
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
		explore_fail("a number is missing: %s", at);
	return end;
}

void
script_run(const char *script, const struct verb *verbs)
{
	const struct verb *verb;
	unsigned first = 0, second = 0;
	size_t length;

	while (script != NULL && *script != 0 && *script != '|') {
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
