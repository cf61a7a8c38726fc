/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PROMISES
 *
 *   also-good   It is.
 */

/* -EPERM */
int hwt_more_do(void);
/* Others as hwt_more_do. */
int hwt_more_undo(void);
