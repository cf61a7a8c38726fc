/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands HWT.ADD to HWT.QUEUE: from words to calls of machine.h, and from
 * results to replies. Both hosts use them, so that they cannot differ.
 *
 * A host finds the machine of the key, or makes an empty one, and calls
 * command_run. If the machine's revision has grown, the host keeps the machine
 * under the key and stores the change or hands the command on; otherwise
 * nothing has happened, and a machine that was made for it is destroyed. A
 * replica runs the same command with the same time.
 */
#ifndef HWT_DURABLE_COMMAND_H
#define HWT_DURABLE_COMMAND_H

#include "modules/durable/machine/machine.h"

/* After the key. */
#define COMMAND_WORDS_MAX (3 * MACHINE_TASKS_MAX + 30)

/* What a command answers, as a stream: an array is followed by its elements. */
struct reply {
	void *ctx;
	/* mark: ':', or '*' for how many elements an array has. */
	void (*number)(void *ctx, char mark, uint64_t number);
	/* NULL: there are none. */
	void (*bytes)(void *ctx, const void *bytes, size_t length);
	/* text: a code in capitals, a blank, a sentence. */
	void (*error)(void *ctx, const char *text);
};

struct call {
	struct machine *machine;
	struct machine_time time;
	size_t argc;
	const struct argument *argv; /* what follows the key */
	const struct reply *reply; /* NULL: nobody is answered */
	size_t payload_max;
	/* Set by a take that found nothing and was told to BLOCK, for so long
	 * (0: without limit): nothing was answered. Before it runs the command
	 * again for the last time, the host sets final. */
	bool blocked, final;
	uint64_t block_ms;
};

struct words;

struct command {
	const char *name; /* without HWT. */
	size_t least; /* words after the key */
	bool writes; /* may change the machine */
	bool adds; /* is refused where the level is not kept */
	void (*run)(struct words *words);
	enum machine_verb verb; /* its order to each task, if it has one */
};

/* In any case; NULL: there is none. */
const struct command *command_find(const char *name, size_t length);
extern const struct command command_table[];
extern const size_t command_count;

/* Advances the machine, if the command writes, and runs it. */
void command_run(const struct command *command, struct call *call);

/* Parsing, for the commands that hosts have of their own. */
bool argument_is(const struct argument *argument, const char *word);
bool argument_number(const struct argument *argument, uint64_t least,
    uint64_t most, uint64_t *number);

#endif
