# SPDX-License-Identifier: Apache-2.0
#
# libhwt_purgatory, a module on top of libhwt; read by Makefile. It needs
# <bsd/sys/tree.h>, which is a header and no library.

purgatory := $(wildcard modules/purgatory/*.c)
purgatory_soname := $(soname:libhwt.%=libhwt_purgatory.%)
purgatory_so := $(so:libhwt.%=libhwt_purgatory.%)
module_sources += $(purgatory)

purgatory: build/plain/libhwt_purgatory.a build/plain/libhwt_purgatory.so

build/%/libhwt_purgatory.o: $$(call objects,$(purgatory))
	$(call say,LD)
	$(Q)$(cc) $(CFLAGS) $(last_$(way)) @build/$(way)/merge -nostdlib -r \
		-o $@ $^
	$(Q)$(cross)$(OBJCOPY) --localize-hidden $@

build/%/libhwt_purgatory.a: build/%/libhwt_purgatory.o
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(cross)$(AR) rcs $@ $<

# Code stays mapped after dlclose: the timer's worker may be leaving it.
build/%/$(purgatory_so): $$(call objects,$(purgatory)) \
		modules/purgatory/hwt_purgatory.map build/%/libhwt.so
	$(call say,LD)
	$(Q)$(link) -shared -Wl,-soname,$(purgatory_soname) -Wl,-z,nodelete \
		-Wl,-z,defs \
		-Wl,--version-script=modules/purgatory/hwt_purgatory.map \
		-o $@ $(filter %.o %.so,$^) $(libs)

build/%/libhwt_purgatory.so: build/%/$(purgatory_so)
	$(Q)ln -sf $(purgatory_so) $(@D)/$(purgatory_soname)
	$(Q)ln -sf $(purgatory_soname) $@

# make install takes it along where its header is to be had.
ifneq ($(filter install,$(MAKECMDGOALS)),)
ifeq ($(shell echo '\#include <bsd/sys/tree.h>' | \
	$(CC) $(CPPFLAGS) -E -x c - >/dev/null 2>&1 && echo there),there)
install: install-purgatory
endif
endif
uninstall: uninstall-purgatory

install-purgatory: purgatory
	$(Q)$(INSTALL) -d '$(lib)/pkgconfig' '$(include)'
	$(Q)$(INSTALL) -m 644 modules/purgatory/hwt_purgatory.h '$(include)'
	$(Q)$(INSTALL) -m 644 build/plain/libhwt_purgatory.a '$(lib)'
	$(Q)$(INSTALL) -m 755 build/plain/$(purgatory_so) '$(lib)'
	$(Q)ln -sf $(purgatory_so) '$(lib)/$(purgatory_soname)'
	$(Q)ln -sf $(purgatory_soname) '$(lib)/libhwt_purgatory.so'
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|dir=$(PREFIX)/|dir=$${prefix}/|' \
		-e 's|@VERSION@|$(version)|' \
		modules/purgatory/hwt-purgatory.pc.in \
		>'$(lib)/pkgconfig/hwt-purgatory.pc'
	$(Q)chmod 644 '$(lib)/pkgconfig/hwt-purgatory.pc'
	$(Q)$(INSTALL) -D -m 644 modules/purgatory/man/hwt_purgatory.3 \
		-t '$(man)/man3'
	$(Q)$(INSTALL) -D -m 644 modules/purgatory/man/hwt_purgatory.7 \
		-t '$(man)/man7'

uninstall-purgatory:
	$(Q)rm -f '$(include)/hwt_purgatory.h' $(patsubst %,'$(lib)/%', \
		pkgconfig/hwt-purgatory.pc libhwt_purgatory.a \
		libhwt_purgatory.so $(purgatory_soname) $(purgatory_so)) \
		'$(man)/man3/hwt_purgatory.3' '$(man)/man7/hwt_purgatory.7'

# The tests.
purgatory_test := modules/purgatory/test
purgatory_spec := $(wildcard $(purgatory_test)/spec/*.c)
purgatory_support := test/spec/support.c test/spec/support_promises.c
purgatory_wrapped := $(sort $(shell sed -n \
	's/^__wrap_\([a-z0-9_]*\).*/\1/p' $(purgatory_support)))
build/%/purgatory-test: $$(call objects,$(purgatory_spec) \
		$(purgatory_support)) \
		$$(objects_$$*) build/%/libhwt_purgatory.a build/%/libhwt.a
	$(call say,LD)
	$(Q)$(link) $(purgatory_wrapped:%=-Wl,--wrap=%) -o $@ $^ -lcriterion \
		$(libs)

purgatory_programs := $(wildcard $(purgatory_test)/stress/*.c)
$(foreach w,plain clang asan tsan cov noise aarch64 aarch64-c11, \
	$(purgatory_programs:%.c=build/$w/%)): %: %.o $$(objects_$$(way)) \
		build/$$(way)/libhwt_purgatory.a build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(libs)

# The module with the functions of the system, and the timer's, under other
# names, to make them fail: as test/faults does it with the library.
purgatory_faults := $(wildcard $(purgatory_test)/faults/*.c) \
	test/faults/faults.c test/faults/system.c test/faults/module/module.c
purgatory_tables := $(purgatory_test)/faults/tables.c
build/%/$(purgatory_test)/faults/module.o: build/%/libhwt_purgatory.o \
		test/faults/imports $(purgatory_tables)
	$(call say,OBJCOPY)
	@mkdir -p $(@D)
	$(Q)test/faults/imports $(purgatory_tables) redefine >$@.names
	$(Q)$(OBJCOPY) --redefine-syms=$@.names $< $@

build/%/$(purgatory_test)/faults/faults: $$(call objects,$(purgatory_faults)) \
		$$(objects_$$*) build/%/$(purgatory_test)/faults/module.o \
		build/%/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(libs)

.PHONY: faults-purgatory
faults: faults-purgatory
faults-purgatory: build/plain/$(purgatory_test)/faults/faults
	@test/faults/imports $(purgatory_tables) check \
		build/plain/libhwt_purgatory.o
	@$< all

ifeq ($(ARCH),aarch64)
check: $(foreach w,aarch64 aarch64-c11,build/$w/purgatory-test \
		$(purgatory_programs:%.c=build/$w/%))
else
check: build/plain/libhwt_purgatory.so build/plain/libhwt_purgatory.a \
		build/plain/purgatory-test \
		build/plain/$(purgatory_test)/faults/faults \
		$(foreach w,plain tsan,$(purgatory_programs:%.c=build/$w/%))
check-all: build/clang/purgatory-test build/asan/purgatory-test $$(longpoll) \
		build/asan/$(purgatory_test)/faults/faults \
		$(foreach w,plain tsan noise, \
			$(purgatory_programs:%.c=build/$w/%))
endif

covered += modules/purgatory
coverage_of += build/cov/purgatory-test \
	$(addsuffix $(,)20,$(purgatory_programs:%.c=build/cov/%)) \
	build/cov/$(purgatory_test)/faults/faults

# The benchmark: a program for each design.
purgatory_designs := $(filter-out main,$(basename $(notdir \
	$(wildcard modules/purgatory/perf/*.c))))
purgatory_perf := $(purgatory_designs:%=build/plain/perf/purgatory/%)
module_perf += $(purgatory_perf)
$(purgatory_perf): build/plain/perf/purgatory/%: \
		build/plain/modules/purgatory/perf/%.o \
		build/plain/modules/purgatory/perf/main.o \
		build/plain/libhwt_purgatory.a build/plain/libhwt.a
	$(call say,LD)
	@mkdir -p $(@D)
	$(Q)$(link) -o $@ $^ -lm $(libs)
build/plain/modules/purgatory/perf/%.o: \
	own = -DHWT_CFLAGS='"$(cc) $(said)"'
