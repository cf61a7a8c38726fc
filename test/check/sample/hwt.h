/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PROMISES
 *
 *   very-good   It is.
 *
 * NOT PROMISED: more.
 */

/*
 * Does.
 *
 * -EPERM   no
 * -EBUSY, -EAGAIN   not now
 */
int hwt_do(int what);

/*
 * Does all. Errors as hwt_do; -EINVAL also.
 */
int hwt_do_all(void);
