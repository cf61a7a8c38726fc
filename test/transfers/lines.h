/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LINES_H
#define LINES_H

#include "hwt.h"

/* Prints which lines moved since cores_run, by the names of a timer's fields
 * and those of the mailboxes of so many cores, and how often for each
 * operation. */
void lines_print(const struct hwt *timer, struct hwt_mailbox *const *mailbox,
    unsigned cores, unsigned operations);

#endif
