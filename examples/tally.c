/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The distribution of lateness: equal steps, so that a percentile is exact to
 * one step however long the server runs.
 */
#include "tally.h"

void
lateness_add(struct lateness *lateness, int64_t ns)
{
	uint64_t step = ns > 0 ? (uint64_t)ns / LATENESS_STEP_NS : 0;

	if (lateness->count == 0 || ns > lateness->max_ns)
		lateness->max_ns = ns;
	lateness->early += ns < 0;
	lateness->count++;
	lateness->bins[step < LATENESS_BINS ? step : LATENESS_BINS - 1]++;
}

void
lateness_merge(struct lateness *into, const struct lateness *from)
{
	size_t i;

	if (into->count == 0 ||
	    (from->count > 0 && from->max_ns > into->max_ns))
		into->max_ns = from->max_ns;
	into->early += from->early;
	into->count += from->count;
	for (i = 0; i < LATENESS_BINS; i++)
		into->bins[i] += from->bins[i];
}

int64_t
lateness_percentile_ns(const struct lateness *lateness, unsigned percent)
{
	uint64_t wanted = (lateness->count * percent + 99) / 100;
	uint64_t seen = 0;
	int64_t end_ns = 0;
	size_t i;

	for (i = 0; i < LATENESS_BINS && seen < wanted; i++) {
		seen += lateness->bins[i];
		end_ns += (int64_t)LATENESS_STEP_NS;
	}
	if (i == LATENESS_BINS || end_ns > lateness->max_ns)
		return lateness->max_ns;
	return end_ns;
}
