/* SPDX-License-Identifier: Apache-2.0 */
#include "test/explore/program.h"

#include "modules/checkout/test/explore/checkout.h"

const struct verb store_verbs[] = {{0}};
