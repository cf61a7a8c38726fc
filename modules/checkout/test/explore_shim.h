/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put before the first line of each source of the checkout, for its explorer:
 * the models of test/sim/sim.h in the place of the system. Time is the
 * timer's, of explore_checkout.c; who sleeps lets others go on.
 */
#ifndef CHECKOUT_EXPLORE_H
#define CHECKOUT_EXPLORE_H

#define SIM_SHIM
#include "test/sim/sim.h"

#undef nanosleep
#define nanosleep(pause, left) ((void)(pause), explore_yield(), 0)
#define LOOKS 1
#define SLOTS 2u

#endif
