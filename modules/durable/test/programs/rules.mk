# SPDX-License-Identifier: Apache-2.0
#
# The client of the tests that break things; read by ../rules.mk.

durable_clients := $(foreach w,plain asan, \
	build/$w/modules/durable/test/programs/client)
$(durable_clients): %: %.o $$(call objects,$(durable)) \
		build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(durable_libs) \
		$(libs)

.PHONY: soak-durable
soak-durable: build/plain/modules/durable/test/programs/client \
		$(durable_demo) $(durable_programs)
	$(Q)python3 -B modules/durable/test/soak.py $(or $(SOAK),600)
	$(Q)python3 -B modules/durable/test/proxy.py --every $(or $(EVERY),1)

durable-tests: $(filter build/plain/%,$(durable_clients))
durable-tests-asan: $(durable_clients)
