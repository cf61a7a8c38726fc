/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer on the machine. The first byte chooses:
 *
 *   even  a file: a header and encoded records, each with a byte for its
 *         length before it. It is refused, or makes a whole machine, which is
 *         the same again after it was saved.
 *   odd   commands, one in a line, words separated by blanks; a line begins
 *         with a byte that moves the time. The machine stays whole.
 */
#include <stdlib.h>
#include <string.h>

#include "modules/durable/machine/command.h"
#include "modules/durable/test/machine_check.h"

#define WORDS 64

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void
must(bool holds)
{
	if (!holds)
		abort();
}

static void
load_piece(const struct record *record, void *ctx)
{
	unsigned char bytes[1024];

	must(record_encoded_max(record) <= sizeof(bytes));
	must(machine_load_record(
	    ctx, bytes, record_encode(record, true, bytes)));
}

static void
load(struct machine *machine, const unsigned char *data, size_t size)
{
	unsigned char header[MACHINE_HEADER_MAX];
	struct machine *again;
	bool first = true;
	bool whole = true;
	size_t length;

	while (size > 0 && whole) {
		length = *data < size ? *data : size - 1;
		whole = first ? machine_load_header(machine, data + 1, length)
			      : machine_load_record(machine, data + 1, length);
		first = false;
		data += 1 + length;
		size -= 1 + length;
	}
	if (!whole || first || !machine_load_end(machine))
		return;
	must(machine_check(machine) == NULL);
	again = machine_create(1);
	must(again != NULL);
	must(machine_load_header(
	    again, header, machine_save_header(machine, header)));
	machine_walk(machine, load_piece, again);
	must(machine_load_end(again));
	must(machine_digest(again) == machine_digest(machine));
	machine_destroy(again);
}

/* Returns the words of a line. */
static size_t
split(struct argument *words, const char *line, size_t length)
{
	const char *end = line + length;
	const char *blank;
	size_t count = 0;

	while (line < end && count < WORDS) {
		blank = memchr(line, ' ', (size_t)(end - line));
		if (blank == NULL)
			blank = end;
		words[count++] =
		    (struct argument){line, (size_t)(blank - line)};
		line = blank < end ? blank + 1 : end;
	}
	return count;
}

static void
run(struct machine *machine, const char *line, size_t length,
    struct machine_time *time)
{
	struct argument words[WORDS];
	const struct command *command;
	struct call call = {
	    .machine = machine, .payload_max = 65536, .argv = words + 1};
	size_t count;

	if (length == 0)
		return;
	time->now_ms += UINT64_C(1) << (*line & 31);
	time->steady_ms += UINT64_C(1) << (*line & 15);
	count = split(words, line + 1, length - 1);
	if (count == 0)
		return;
	command = command_find(words[0].bytes, words[0].length);
	if (command == NULL)
		return;
	call.time = *time;
	call.argc = count - 1;
	command_run(command, &call);
	must(machine_check(machine) == NULL);
}

int
LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
	struct machine_time time = {1000000, 0};
	struct machine *machine = machine_create(0);
	const unsigned char *line, *end = data + size;

	must(machine != NULL);
	if (size > 0 && data[0] % 2 == 0) {
		load(machine, data + 1, size - 1);
	} else if (size > 0) {
		for (data++; data < end; data = line + 1) {
			line = memchr(data, '\n', (size_t)(end - data));
			if (line == NULL)
				line = end;
			run(machine, (const char *)data, (size_t)(line - data),
			    &time);
		}
	}
	machine_destroy(machine);
	return 0;
}
