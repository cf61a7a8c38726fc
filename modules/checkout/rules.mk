# SPDX-License-Identifier: Apache-2.0
#
# libhwt_checkout, a module on top of libhwt; read by Makefile.

$(eval $(call module,checkout))
$(eval $(call module_tests,checkout))

# Its explorer has a model of its own in the place of the timer.
explored_alone += $(checkout)
checkout_shim := -include $(checkout_test)/explore_shim.h
checkout_explorer := $(wildcard $(checkout_test)/explore_*.c)
checkout_explored := $(addsuffix .o,$(basename $(checkout) \
	$(checkout_explorer)))
$(foreach w,explore cov-explore,$(checkout_explored:%=build/$w/%)): \
	own = $(checkout_shim)
# Not at random addresses, as the shards follow from these.
build/%/checkout-explore: $$(call objects,$(checkout) \
		$(checkout_explorer) test/explore/explore.c \
		test/sim/sim.c test/script.c)
	$(call say,LD)
	$(Q)$(link) -no-pie -o $@ $(filter %.o,$^) $(libs)

# make perf-store STORE='objects=1000000': see perf/store/store.c.
checkout_store := build/plain/perf/checkout-store
$(checkout_store): private own_libs = -lm
$(checkout_store): build/plain/modules/checkout/perf/store/store.o \
		build/plain/libhwt_checkout.a build/plain/libhwt.a
	@mkdir -p $(@D)
	$(link_program)
.PHONY: perf-store
perf-store: $(checkout_store)
	@for design in hwt mutex order; do \
		echo "$$design:" && $< $$design $(STORE) || exit 1; done

coverage_of += build/cov-explore/checkout-explore$(,)1000
