/* SPDX-License-Identifier: Apache-2.0 */
/*
 *   E:first   what is written, release in put, acquired in get.
 *   E:second  both sides have a fence.
 */
#include "hwt.h"

static int word;

int
hwt_do(int what)
{
	/* E:first release */
	word = what;
	/* E:second fence */
	return word;
}

int
hwt_do_all(void)
{
	/* E:first acquire, E:second fence */
	return word;
}
