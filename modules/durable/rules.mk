# SPDX-License-Identifier: Apache-2.0
#
# libhwt_durable, a module on top of libhwt, and its programs; read by Makefile.
# It needs hiredis, and its tests a redis-server.

durable := $(wildcard modules/durable/*.c)
durable_libs := -lhiredis
durable_soname := $(soname:libhwt.%=libhwt_durable.%)
durable_so := $(so:libhwt.%=libhwt_durable.%)
module_sources += $(durable)
# The explorer has no model of a server.
explored_alone += $(durable)

durable_mains := hwtd hwtctl hwt-exec
durable_programs := $(durable_mains:%=build/plain/%)

durable: build/plain/libhwt_durable.a build/plain/libhwt_durable.so \
		$(durable_programs)

# The scripts, as they are sent, with the common part put into each.
durable_scripts := $(filter-out modules/durable/scripts/common.lua, \
	$(sort $(wildcard modules/durable/scripts/*.lua)))
build/durable/scripts.h: modules/durable/embed $(durable_scripts) \
		modules/durable/scripts/common.lua
	$(call say,EMBED)
	@mkdir -p $(@D)
	$(Q)modules/durable/embed modules/durable/scripts >$@
$(foreach w,plain clang asan tsan noise fuzz cov lto, \
	build/$w/modules/durable/engine.o): build/durable/scripts.h

build/%/libhwt_durable.o: $$(call objects,$(durable))
	$(call say,LD)
	$(Q)$(cc) $(CFLAGS) $(last_$(way)) @build/$(way)/merge -nostdlib -r \
		-o $@ $^
	$(Q)$(cross)$(OBJCOPY) --localize-hidden $@

build/%/libhwt_durable.a: build/%/libhwt_durable.o
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(cross)$(AR) rcs $@ $<

# Code stays mapped after dlclose: the timer's worker may be leaving it.
build/%/$(durable_so): $$(call objects,$(durable)) \
		modules/durable/hwt_durable.map build/%/libhwt.so
	$(call say,LD)
	$(Q)$(link) -shared -Wl,-soname,$(durable_soname) -Wl,-z,nodelete \
		-Wl,-z,defs \
		-Wl,--version-script=modules/durable/hwt_durable.map \
		-o $@ $(filter %.o %.so,$^) $(durable_libs) $(libs)

build/%/libhwt_durable.so: build/%/$(durable_so)
	$(Q)ln -sf $(durable_so) $(@D)/$(durable_soname)
	$(Q)ln -sf $(durable_soname) $@

# The programs look closer than the library lets others do: they are linked with
# its objects.
durable_shared := $(filter-out \
	$(durable_mains:%=modules/durable/programs/%.c), \
	$(wildcard modules/durable/programs/*.c))
durable_linked := $(foreach w,plain clang asan tsan, \
	$(durable_mains:%=build/$w/%))
$(durable_linked): build/%: $$(call objects, $(durable_shared) $(durable) \
		modules/durable/programs/$$(@F).c) \
		build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(durable_libs) \
		$(libs)

# make install takes it along where its header is to be had.
ifneq ($(filter install,$(MAKECMDGOALS)),)
ifeq ($(shell echo '\#include <hiredis/hiredis.h>' | \
	$(CC) $(CPPFLAGS) -E -x c - >/dev/null 2>&1 && echo there),there)
install: install-durable
endif
endif
uninstall: uninstall-durable

BINDIR ?= $(PREFIX)/bin
durable_bin := $(DESTDIR)$(BINDIR)
durable_pages := $(wildcard modules/durable/man/*.[1-9])
install-durable: durable
	$(Q)$(INSTALL) -d '$(lib)/pkgconfig' '$(include)' '$(durable_bin)'
	$(Q)$(INSTALL) -m 644 modules/durable/hwt_durable.h '$(include)'
	$(Q)$(INSTALL) -m 644 build/plain/libhwt_durable.a '$(lib)'
	$(Q)$(INSTALL) -m 755 build/plain/$(durable_so) '$(lib)'
	$(Q)$(INSTALL) -m 755 $(durable_programs) '$(durable_bin)'
	$(Q)ln -sf $(durable_so) '$(lib)/$(durable_soname)'
	$(Q)ln -sf $(durable_soname) '$(lib)/libhwt_durable.so'
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|dir=$(PREFIX)/|dir=$${prefix}/|' \
		-e 's|@VERSION@|$(version)|' \
		modules/durable/hwt-durable.pc.in \
		>'$(lib)/pkgconfig/hwt-durable.pc'
	$(Q)chmod 644 '$(lib)/pkgconfig/hwt-durable.pc'
	$(Q)for page in $(durable_pages); do \
		$(INSTALL) -D -m 644 $$page -t "$(man)/man$${page##*.}"; \
	done

uninstall-durable:
	$(Q)rm -f '$(include)/hwt_durable.h' $(patsubst %,'$(lib)/%', \
		pkgconfig/hwt-durable.pc libhwt_durable.a \
		libhwt_durable.so $(durable_soname) $(durable_so)) \
		$(patsubst %,'$(durable_bin)/%',$(durable_mains)) \
		$(foreach p,$(notdir $(durable_pages)), \
			'$(man)/man$(lastword $(subst ., ,$p))/$p')
	$(Q)rmdir '$(durable_bin)' 2>/dev/null || :

# The tests.
durable_test := modules/durable/test
durable_spec := $(wildcard $(durable_test)/spec/*.c)
durable_support := test/spec/support.c test/spec/support_promises.c
durable_wrapped := $(sort $(shell sed -n \
	's/^__wrap_\([a-z0-9_]*\).*/\1/p' $(durable_support)))
build/%/durable-test: $$(call objects,$(durable_spec) $(durable) \
		$(durable_support)) $$(objects_$$*) build/%/libhwt.a
	$(call say,LD)
	$(Q)$(link) $(durable_wrapped:%=-Wl,--wrap=%) -o $@ $^ -lcriterion \
		$(durable_libs) $(libs)

durable_stress := $(wildcard $(durable_test)/stress/*.c)
durable_stressed := $(foreach w,plain asan tsan, \
	$(durable_stress:%.c=build/$w/%))
$(durable_stressed): %: %.o \
		$$(call objects,$(durable) $(durable_test)/spec/server.c) \
		$$(objects_$$(way)) build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(durable_libs) \
		$(libs)

durable_fuzz := $(durable_test)/fuzz/route.c
build/fuzz/durable-route: $$(call objects,$(durable_fuzz) \
		modules/durable/route.c modules/durable/task.c)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)
build/asan/durable-route: $$(call objects,$(durable_fuzz) \
		test/fuzz/replay.c modules/durable/route.c \
		modules/durable/task.c)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)

ifneq ($(ARCH),aarch64)
check: build/plain/libhwt_durable.so build/plain/libhwt_durable.a \
		build/plain/durable-test build/asan/durable-route \
		$(durable_programs) $(filter build/tsan/%,$(durable_stressed))
check-all: build/clang/durable-test build/asan/durable-test \
		build/fuzz/durable-route $(durable_stressed)
endif

-include modules/durable/programs/rules.mk modules/durable/test/rules.mk \
	modules/durable/perf/rules.mk
