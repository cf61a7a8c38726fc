/* SPDX-License-Identifier: Apache-2.0 */
#define HWT_NEVER UINT64_MAX
#define HWT_MANUAL 1u
#define HWT_RELAXED 2u
