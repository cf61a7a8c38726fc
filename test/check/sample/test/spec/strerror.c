/* SPDX-License-Identifier: Apache-2.0 */
static const int known[] = {0, EPERM, EBUSY, EAGAIN, EINVAL};
