/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's static data (sections hwt_data and hwt_bss, renamed by the
 * Makefile) is what it was after its constructors, at the begin of each
 * execution.
 */
#include "test/sim/sim.h"

#include "core/timer.h"

extern char __start_hwt_data[], __stop_hwt_data[];
extern char __start_hwt_bss[], __stop_hwt_bss[];
static char *data_kept, *bss_kept;

static size_t
data_bytes(void)
{
	return (size_t)(__stop_hwt_data - __start_hwt_data);
}

static size_t
bss_bytes(void)
{
	return (size_t)(__stop_hwt_bss - __start_hwt_bss);
}

static void
put_back(void)
{
	memset(&thread_state, 0, sizeof(thread_state));
	memcpy(__start_hwt_data, data_kept, data_bytes());
	memcpy(__start_hwt_bss, bss_kept, bss_bytes());
}

void
sim_init(void)
{
	data_kept = malloc(data_bytes() + bss_bytes());
	if (data_kept == NULL)
		abort();
	sim_on_reset(put_back);
	bss_kept = data_kept + data_bytes();
	memcpy(data_kept, __start_hwt_data, data_bytes());
	memcpy(bss_kept, __start_hwt_bss, bss_bytes());
	explore_add_local(&thread_state, sizeof(thread_state));
}
