/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   E:first   what is written, release in put, acquired in get.
 *   E:second  both sides have a fence.
 */
#include "hwt.h"

static a64_t word;

int
hwt_do(int what)
{
	/* E:first release */
	a64_store_release(&word, what);
	/* E:second fence */
	return (int)a64_load_seq(&word);
}

int
hwt_do_all(void)
{
	/* E:first acquire, E:second fence */
	return (int)a64_load_seq(&word);
}
