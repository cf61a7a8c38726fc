# SPDX-License-Identifier: Apache-2.0
#
# How libraries are linked, the core and each module alike; read by Makefile.
#
# modules/NAME/rules.mk may set these and then calls module:
#
#   NAME_sources   its files, where they are others than modules/NAME/*.c
#   NAME_header    headers that it cannot be compiled without
#   NAME_package   Debian's packages that bring them
#   NAME_libs      what programs and the shared library link besides
#
# The installed files are lists, which the other rules may add to; see
# packaging/rules.mk:
#
#   NAME_include   headers
#   NAME_bin       programs, by their names in build/plain
#   NAME_plugin    what others load, by its path in build/plain, for LIBDIR/hwt
#   NAME_man       manual pages
#   NAME_pages     the header of which pages are made
#   NAME_doc       files for DOCDIR, which keep their path there
#   NAME_fill      files of LIBDIR that are made from templates

# One object with its inner names made local: a program that links it may use
# the same names for its own. _.stapsdt.base, in the note of each probe, is that
# of all objects of a program which have probes.
shown := --wildcard '--keep-global-symbol=hwt_*' \
	--keep-global-symbol=_.stapsdt.base
define merge_objects
$(call say,LD)
$(Q)$(cc) $(CFLAGS) $(last_$(way)) @build/$(way)/merge -nostdlib -r -o $@ $^
$(Q)$(cross)$(OBJCOPY) $(shown) $@
endef

build/%.a: build/%.o
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(cross)$(AR) rcs $@ $<

# Code stays mapped after dlclose: a timer's worker may be running it.
define link_shared
$(call say,LD)
$(Q)$(link) -shared -Wl,-soname,$(@F:.$(version)=.$(major)) -Wl,-z,nodelete \
	-Wl,-z,defs -Wl,--version-script=$(filter %.map,$^) \
	-o $@ $(filter %.o %.so,$^) $(own_libs) $(libs)
endef

build/%.so: build/%.so.$(version)
	$(Q)ln -sf $(<F) $(<:.$(version)=.$(major))
	$(Q)ln -sf $(<F:.$(version)=.$(major)) $@

# Programs of objects and libraries.
define link_program
$(call say,LD)
$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(own_libs) $(libs)
endef

define module
$1 := $(or $($1_sources),$(wildcard modules/$1/*.c))
module_sources += $$($1)
$1: build/plain/libhwt_$1.a build/plain/libhwt_$1.so \
		$$($1_bin:%=build/plain/%) $$($1_plugin:%=build/plain/%)

build/%/libhwt_$1.o: $$$$(call objects,$$($1))
	$$(merge_objects)
build/%/libhwt_$1.so.$(version): private own_libs = $$($1_libs)
build/%/libhwt_$1.so.$(version): $$$$(call objects,$$($1)) \
		modules/$1/hwt_$1.map build/%/libhwt.so
	$$(link_shared)

$1_include += $(wildcard modules/$1/hwt_$1.h modules/$1/hwt_$1.hpp)
$1_man += $(wildcard modules/$1/man/*.[1-9])
$1_pages := modules/$1/hwt_$1.h
$1_doc += $(wildcard modules/$1/README modules/$1/DESIGN)
$1_fill += pkgconfig/hwt-$1.pc
endef

# The tests and benchmarks of a module that needs libhwt alone: its suite, its
# stress programs, its faults, and a program for each design that its perf/
# compares.
define module_tests
$1_test := modules/$1/test
$1_support := test/spec/support.c test/script.c
$1_wrapped := $$(sort $$(shell sed -n \
	-e 's/^__wrap_\([a-z0-9_]*\).*/\1/p' \
	-e 's/^WRAP.[a-z *]*, \([a-z_]*\),.*/\1/p' \
	$$($1_support)))
build/%/$1-test: private own_libs = $$($1_wrapped:%=-Wl,--wrap=%) \
	-lcriterion
build/%/$1-test: $$$$(call objects,$(wildcard modules/$1/test/spec/*.c) \
		$$($1_support)) $$$$(objects_$$$$*) \
		build/%/libhwt_$1.a build/%/libhwt.a
	$$(link_program)

$1_programs := $(wildcard modules/$1/test/stress/*.c)
# For AddressSanitizer: what breaks a rule of ownership, and who keeps it.
$1_owners := $(wildcard modules/$1/test/misuse/*.c \
	modules/$1/test/stress/*_found.c)
$$(foreach w,plain clang asan tsan cov musl aarch64, \
		$$(patsubst %.c,build/$$w/%, \
		$$(sort $$($1_programs) $$($1_owners)))): %: %.o \
		$$$$(objects_$$$$(way)) build/$$$$(way)/libhwt_$1.a \
		build/$$$$(way)/libhwt.a
	$$(link_program)

covered += modules/$1
coverage_of += build/cov/$1-test \
	$$(addsuffix $$(,)20,$$($1_programs:%.c=build/cov/%))

$1_perf := $(patsubst %.c,build/plain/perf/$1/%,$(notdir \
	$(filter-out %/main.c,$(wildcard modules/$1/perf/*.c))))
module_perf += $$($1_perf)
$$($1_perf): private own_libs = -lm
$$($1_perf): build/plain/perf/$1/%: build/plain/modules/$1/perf/%.o \
		build/plain/modules/$1/perf/main.o \
		build/plain/libhwt_$1.a build/plain/libhwt.a
	@mkdir -p $$(@D)
	$$(link_program)
build/plain/modules/$1/perf/%.o: own = -DHWT_CFLAGS='"$$(cc) $$(said)"'
endef
