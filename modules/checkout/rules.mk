# SPDX-License-Identifier: Apache-2.0
#
# libhwt_checkout, a module on top of libhwt; read by Makefile.

checkout := $(wildcard modules/checkout/*.c)
checkout_soname := $(soname:libhwt.%=libhwt_checkout.%)
checkout_so := $(so:libhwt.%=libhwt_checkout.%)
module_sources += $(checkout)

checkout: build/plain/libhwt_checkout.a build/plain/libhwt_checkout.so

build/%/libhwt_checkout.o: $$(call objects,$(checkout))
	$(call say,LD)
	$(Q)$(cc) $(CFLAGS) $(last_$(way)) @build/$(way)/merge -nostdlib -r \
		-o $@ $^
	$(Q)$(cross)$(OBJCOPY) --localize-hidden $@

build/%/libhwt_checkout.a: build/%/libhwt_checkout.o
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(cross)$(AR) rcs $@ $<

# Code stays mapped after dlclose: the timer's worker may be leaving it.
build/%/$(checkout_so): $$(call objects,$(checkout)) \
		modules/checkout/hwt_checkout.map build/%/libhwt.so
	$(call say,LD)
	$(Q)$(link) -shared -Wl,-soname,$(checkout_soname) -Wl,-z,nodelete \
		-Wl,-z,defs \
		-Wl,--version-script=modules/checkout/hwt_checkout.map \
		-o $@ $(filter %.o %.so,$^) $(libs)

build/%/libhwt_checkout.so: build/%/$(checkout_so)
	$(Q)ln -sf $(checkout_so) $(@D)/$(checkout_soname)
	$(Q)ln -sf $(checkout_soname) $@

install: install-checkout
uninstall: uninstall-checkout

install-checkout: checkout
	$(Q)$(INSTALL) -d '$(lib)/pkgconfig' '$(include)'
	$(Q)$(INSTALL) -m 644 modules/checkout/hwt_checkout.h '$(include)'
	$(Q)$(INSTALL) -m 644 build/plain/libhwt_checkout.a '$(lib)'
	$(Q)$(INSTALL) -m 755 build/plain/$(checkout_so) '$(lib)'
	$(Q)ln -sf $(checkout_so) '$(lib)/$(checkout_soname)'
	$(Q)ln -sf $(checkout_soname) '$(lib)/libhwt_checkout.so'
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|dir=$(PREFIX)/|dir=$${prefix}/|' \
		-e 's|@VERSION@|$(version)|' \
		modules/checkout/hwt-checkout.pc.in \
		>'$(lib)/pkgconfig/hwt-checkout.pc'
	$(Q)chmod 644 '$(lib)/pkgconfig/hwt-checkout.pc'
	$(Q)$(INSTALL) -D -m 644 modules/checkout/man/hwt_checkout.3 \
		-t '$(man)/man3'
	$(Q)$(INSTALL) -D -m 644 modules/checkout/man/hwt_checkout.7 \
		-t '$(man)/man7'

uninstall-checkout:
	$(Q)rm -f '$(include)/hwt_checkout.h' $(patsubst %,'$(lib)/%', \
		pkgconfig/hwt-checkout.pc libhwt_checkout.a \
		libhwt_checkout.so $(checkout_soname) $(checkout_so)) \
		'$(man)/man3/hwt_checkout.3' '$(man)/man7/hwt_checkout.7'

# The tests.
checkout_test := modules/checkout/test
checkout_spec := $(wildcard $(checkout_test)/spec/*.c)
checkout_support := test/spec/support.c test/spec/support_promises.c
checkout_wrapped := $(sort $(shell sed -n \
	's/^__wrap_\([a-z0-9_]*\).*/\1/p' $(checkout_support)))
build/%/checkout-test: $$(call objects,$(checkout_spec) \
		$(checkout_support)) \
		$$(objects_$$*) build/%/libhwt_checkout.a build/%/libhwt.a
	$(call say,LD)
	$(Q)$(link) $(checkout_wrapped:%=-Wl,--wrap=%) -o $@ $^ -lcriterion \
		$(libs)

checkout_programs := $(wildcard $(checkout_test)/stress/*.c)
$(foreach w,plain clang asan tsan noise cov, \
	$(checkout_programs:%.c=build/$w/%)): %: %.o $$(objects_$$(way)) \
		build/$$(way)/libhwt_checkout.a build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(libs)

# The module with the functions of the system, and the timer's, under other
# names, to make them fail: as test/faults does it with the library.
checkout_faults := $(wildcard $(checkout_test)/faults/*.c) \
	test/faults/faults.c test/faults/system.c test/faults/module/module.c
checkout_tables := $(checkout_test)/faults/tables.c
build/%/$(checkout_test)/faults/module.o: build/%/libhwt_checkout.o \
		test/faults/imports $(checkout_tables)
	$(call say,OBJCOPY)
	@mkdir -p $(@D)
	$(Q)test/faults/imports $(checkout_tables) redefine >$@.names
	$(Q)$(OBJCOPY) --redefine-syms=$@.names $< $@

build/%/$(checkout_test)/faults/faults: $$(call objects,$(checkout_faults)) \
		$$(objects_$$*) build/%/$(checkout_test)/faults/module.o \
		build/%/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(libs)

.PHONY: faults-checkout
faults: faults-checkout
faults-checkout: build/plain/$(checkout_test)/faults/faults
	@test/faults/imports $(checkout_tables) check \
		build/plain/libhwt_checkout.o
	@$< all

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
check: build/plain/libhwt_checkout.so build/plain/libhwt_checkout.a \
		build/plain/checkout-test build/explore/checkout-explore \
		build/plain/$(checkout_test)/faults/faults \
		$(foreach w,plain tsan,$(checkout_programs:%.c=build/$w/%))
check-all: build/clang/checkout-test build/asan/checkout-test $$(pool) \
		build/explore/checkout-explore \
		build/asan/$(checkout_test)/faults/faults \
		$(foreach w,plain tsan noise, \
			$(checkout_programs:%.c=build/$w/%))
endif

covered += modules/checkout
coverage_of += build/cov/checkout-test \
	$(addsuffix $(,)20,$(checkout_programs:%.c=build/cov/%)) \
	build/cov/$(checkout_test)/faults/faults$(,)all \
	build/cov-explore/checkout-explore$(,)1000

# The benchmark: a program for each design.
checkout_designs := $(filter-out main,$(basename $(notdir \
	$(wildcard modules/checkout/perf/*.c))))
checkout_perf := $(checkout_designs:%=build/plain/perf/checkout/%)
module_perf += $(checkout_perf)
$(checkout_perf): build/plain/perf/checkout/%: \
		build/plain/modules/checkout/perf/%.o \
		build/plain/modules/checkout/perf/main.o \
		build/plain/libhwt_checkout.a build/plain/libhwt.a
	$(call say,LD)
	@mkdir -p $(@D)
	$(Q)$(link) -o $@ $^ -lm $(libs)
build/plain/modules/checkout/perf/%.o: \
	own = -DHWT_CFLAGS='"$(cc) $(said)"'
