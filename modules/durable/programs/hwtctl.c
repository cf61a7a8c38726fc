/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwtctl - adds, cancels and shows tasks, and looks after a space. Its commands
 * are in files by what they are about: see hwtctl.h.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "hwtctl.h"

static const char usage[] =
    "usage: hwtctl COMMAND [OPTION...]\n"
    "\n"
    "  init [--shards N] [--slots N] [--tick MS] [--retention SECONDS]\n"
    "       [--level memory|fsync|replicated] [--repair]\n"
    "  add --queue Q (--in SECONDS | --at UNIX) [--id ID] [--attempts N]\n"
    "      [--payload TEXT | --payload -] [--replace]\n"
    "      [--priority high|normal|low]\n"
    "      [--expires-in SECONDS | --expires-at UNIX]\n"
    "      [--retry-first SECONDS] [--retry-factor N] "
    "[--retry-most SECONDS]\n"
    "  add --from FILE|- [--replace]\n"
    "  cancel ID\n"
    "  reschedule ID (--in SECONDS | --at UNIX)\n"
    "  show ID\n"
    "  list [--state STATE]\n"
    "  stat [--json | --prometheus]\n"
    "  dead list\n"
    "  dead replay|drop ID...|--all\n"
    "  pause --queue Q | SHARD\n"
    "  resume --queue Q | SHARD\n"
    "  limit --queue Q [--at-once N] [--rate N]\n"
    "  schedule add NAME (--every SECONDS | --cron LINE [--zone ZONE])\n"
    "      --queue Q [--missed last|all|none] [--attempts N]\n"
    "      [--payload TEXT | --payload -] [--priority high|normal|low]\n"
    "      [--expires-in SECONDS]\n"
    "      [--retry-first SECONDS] [--retry-factor N] "
    "[--retry-most SECONDS]\n"
    "  schedule list [NAME...]\n"
    "  schedule drop NAME...\n"
    "  clock [--reset]\n"
    "  check\n"
    "\n"
    "  --base64    each ID on the command line is base64\n";

static const struct command {
	const char *name;
	enum status (*run)(int argc, char **argv);
	int min, max; /* how many arguments */
	const char *options; /* each between blanks */
} commands[] = {
    {"init", run_init, 0, 0, " shards slots tick retention level repair "},
    {"add", run_add, 0, 0,
	" queue in at id attempts payload from base64 replace priority "
	"expires-in expires-at retry-first retry-factor retry-most "},
    {"cancel", run_cancel, 1, 1, " base64 "},
    {"reschedule", run_reschedule, 1, 1, " in at base64 "},
    {"show", run_show, 1, 1, " base64 "},
    {"list", run_list, 0, 0, " state "},
    {"stat", run_stat, 0, 0, " json prometheus "},
    {"dead", run_dead, 1, INT32_MAX, " all base64 "},
    {"pause", run_pause, 0, 1, " queue "},
    {"resume", run_resume, 0, 1, " queue "},
    {"limit", run_limit, 0, 0, " queue at-once rate "},
    {"schedule", run_schedule, 1, INT32_MAX,
	" queue every cron zone missed attempts payload priority expires-in "
	"retry-first retry-factor retry-most "},
    {"clock", run_clock, 0, 0, " reset "},
    {"check", run_check, 0, 0, " "},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *
command_find(const char *name)
{
	size_t i;

	for (i = 0; i < COMMANDS; i++) {
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	}
	usage_error("%s: no such command", name);
}

int
main(int argc, char **argv)
{
	static const struct program program = {
	    .name = "hwtctl", .usage = usage, .rows = {hwtctl_rows}};
	const struct command *command;
	int count = options_read(&program, argc, argv);

	if (count == 0)
		usage_error("want a command");
	command = command_find(argv[0]);
	options_fit(command->name, command->options);
	if (count - 1 < command->min || count - 1 > command->max)
		usage_error("%s: wrong number of arguments", command->name);
	finish(command->run(count - 1, argv + 1));
}
