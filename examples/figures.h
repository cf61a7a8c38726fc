/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures that the programs of the demo have told, by name, and what the
 * demo makes of them.
 */
#ifndef EXAMPLES_FIGURES_H
#define EXAMPLES_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

#include "common.h"

/* A figure is set once; a later value of the same name is ignored. */
void figure_set(const char *name, int64_t value);

bool figure_is_set(const char *name);

/* -1 when it was never set; that is remembered, and fails the judgement. */
int64_t figure(const char *name);

/* What the run should have been. */
struct setup {
	unsigned connections, hostile, polite;
};

/* Prints the table and each check; true when all passed. */
bool figures_judge(const struct setup *setup);

#endif
