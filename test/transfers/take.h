/* SPDX-License-Identifier: Apache-2.0 */
/* take_line of core/atomic.h, as simulator.c has it. */
void simulated_take(const volatile void *memory);
