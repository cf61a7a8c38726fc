/* SPDX-License-Identifier: Apache-2.0 */
/* The checkout, first come, first served. */
#define HOLD_AFTER 1
#define WHAT "hwt_checkout, first come first served"
#include "modules/checkout/perf/hwt.c"
