# SPDX-License-Identifier: Apache-2.0
#
# libhwt_checkout, a module on top of libhwt; read by Makefile.

$(eval $(call module,checkout))
$(eval $(call module_tests,checkout))

# Its explorer has models of its own in the place of the timer, locks and
# memory.
explored_alone += $(checkout)
checkout_shim := -include $(checkout_test)/explore_shim.h
checkout_explored := $(addsuffix .o,$(basename $(checkout) \
	$(checkout_test)/explore_checkout.c))
$(foreach w,explore cov-explore,$(checkout_explored:%=build/$w/%)): \
	own = $(checkout_shim)
# Not at random addresses, as the shards follow from these.
build/%/checkout-explore: $$(call objects,$(checkout) \
		$(checkout_test)/explore_checkout.c test/explore/explore.c)
	$(call say,LD)
	$(Q)$(link) -no-pie -o $@ $(filter %.o,$^) $(libs)

ifneq ($(ARCH),aarch64)
check: build/explore/checkout-explore
check-all: build/explore/checkout-explore $$(pool)
endif

coverage_of += build/cov-explore/checkout-explore$(,)1000
