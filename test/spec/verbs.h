/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs of scripts that are one call, which must answer what is said. */
#ifndef SPEC_VERBS_H
#define SPEC_VERBS_H

#include "test/script.h"
#include "test/spec/support.h"

static inline void
expect(int rc, int wanted)
{
	cr_assert(rc == wanted, "%s, not %s, at: %s", rc_name(rc),
	    rc_name(wanted), script_at);
}

#define OF(name, call, rc)           \
	static void name(unsigned i) \
	{                            \
		expect(call, rc);    \
	}
#define ALONE(name, call, rc)     \
	static void name(void)    \
	{                         \
		expect(call, rc); \
	}

#endif
