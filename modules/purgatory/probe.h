/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static probes of a purgatory, as core/probe.h has them for a timer, under
 * the same conditions. The provider is hwt_purgatory:
 *
 *   bpftrace -e 'usdt:/usr/lib/libhwt_purgatory.so:hwt_purgatory:end
 *       { @[arg2] = count(); }'
 *
 * purgatory is an address; operation is a handle's id; kind and key are those
 * of a struct hwt_key.
 *
 *   PROBE       ARGUMENTS
 *   watch       purgatory, operation, delay_ns, arg
 *   try         purgatory, operation, holds
 *   reschedule  purgatory, operation, delay_ns
 *   end         purgatory, operation, outcome, arg
 *   key_make    purgatory, kind, key
 *   key_remove  purgatory, kind, key
 *
 * watch comes before the operation is linked, and so before its other probes.
 * try: its predicate has returned. reschedule: its deadline was moved. end: its
 * outcome is decided and is about to be carried out; outcome 5 is that of a
 * watch which fails after its probe, whose done is not called. key_make and
 * key_remove: something is linked under the key, and nothing any more. These
 * and watch come with a lock held.
 */
#ifndef HWT_PURGATORY_PROBE_H
#define HWT_PURGATORY_PROBE_H

#include "core/probe.h"

#define OPERATION_PROBE(name, ...) PROBE_OF(hwt_purgatory, name, __VA_ARGS__)

#endif
