/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores with a cache each, simulated: what is compiled with -fsanitize=thread
 * calls __tsan_read8, __tsan_atomic64_load and so on for each access to memory,
 * and simulator.c defines them. It keeps for each line of 64 bytes which cores
 * have it, as MESI does, and counts a transfer whenever a core must get a line
 * from another one, or take it away from others before it writes. Caches are
 * without limit; what no core has comes from memory and is no transfer.
 *
 * A core is a thread. One runs at a time, in an order that is the same in each
 * run: while it measures, the next one goes on after each access, so that the
 * cores meet wherever they can.
 */
#ifndef SIMULATOR_H
#define SIMULATOR_H

#include <stdbool.h>
#include <stdint.h>

#define CORES_MAX 64u

/* Runs body on so many cores, and returns when all have returned. Lines that
 * were in caches before are not any more. */
void cores_run(unsigned cores, void (*body)(unsigned core));

/* From now on, lines have so many bytes, a power of two; and the next core is
 * one at random, which the seed determines, or with 0 the next one. */
void cores_option(unsigned line_bytes, uint64_t seed);

/* In a body. */

/* Goes on when each core has called it. */
void cores_meet(void);
/* Lets the next core go on. */
void core_pass(void);
/* Lets others go on until another core has made the counter that great. */
void core_await(const unsigned *counter, unsigned value);
/* From now on, or no longer, this core's accesses count. */
void core_measure(bool on);
/* This core's accesses take turns with the others', but do not count. What
 * others must get from it does. */
void core_stand_by(void);

/* A lock: a core that must wait for it moves its line once, however often it
 * looks, as one that sleeps would. */
void core_lock(unsigned *word);
void core_unlock(unsigned *word);

/* Since cores_run: of all cores. */
uint64_t transfers_counted(void);
/* The most of them that cannot overlap: those by one core, of one line, or of
 * whoever held the lock. */
uint64_t transfers_in_a_row(void);
/* Calls word for each word whose accesses moved its line. */
void transfers_each(void (*word)(uintptr_t address, uint64_t transfers));

#endif
