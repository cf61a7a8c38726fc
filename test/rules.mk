# SPDX-License-Identifier: Apache-2.0
#
# How the tests are built; read by Makefile. test/check/jobs says which run. The
# ways of building:
#
#   plain, clang   the user's flags, with CC and with a second compiler
#   asan           AddressSanitizer and UBSan
#   tsan           ThreadSanitizer
#   fuzz           libFuzzer
#   late           atomic operations come late: test/stress/late.h
#   cov            counts for gcovr
#   lto            optimized by the linker
#   musl           with musl for the C library
#   explore        each atomic operation is a step of the explorer of
#                  interleavings; cov-explore counts there
#   aarch64        static, for qemu-user

STRESS ?= 100
FUZZ ?= 600
EXPLORE ?= --schedules 10000
ONLY ?= *

ifneq ($(filter check check-all,$(MAKECMDGOALS)),)
export WERROR := 1
endif
# For scripts, some of which run make.
export CC CXX CLANG CPPFLAGS CFLAGS LDFLAGS LDLIBS STRESS ONLY MAKE_COMMAND

cc_clang = $(CLANG)
flags_asan := -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer
cc_fuzz = $(CLANG)
flags_fuzz := -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
libs_fuzz := -fsanitize=fuzzer
flags_late := -D_GNU_SOURCE= -include test/stress/late.h
last_lto := -flto
cc_musl := musl-gcc
flags_musl := -isystem build/musl/include
cc_aarch64 := aarch64-linux-gnu-gcc
# ConcurrencyKit's ck_md.h is for this machine.
flags_aarch64 := -isystem build/aarch64/include -DCK_MD_H -DCK_MD_RMO \
	-DCK_MD_CACHELINE=64 -DCK_MD_PAGESIZE=4096 -DCK_MD_VMA_BITS=48ULL \
	-DCK_MD_LSE_DISABLE -DCK_MD_POINTER_PACK_DISABLE -DHWT_EMULATED
link_aarch64 := -static
# Of these libraries, headers are enough.
build/musl/flags: | build/musl/include
build/aarch64/flags: | build/aarch64/include
build/musl/include build/aarch64/include:
	@mkdir -p $@
	@ln -sf /usr/include/bsd /usr/include/hiredis $@
	@[ $@ != build/aarch64/include ] || \
		ln -sf /usr/include/ck_*.h /usr/include/gcc $@
# Each condition as it stands in the source, assertions left out: what they
# find is never there, nor is ThreadSanitizer; and each function once, not in
# copies. Counters are added to by many threads. A process that leaves by _exit
# or abort writes its counts as well.
flags_cov := --coverage -fprofile-update=atomic -DNDEBUG \
	-DALWAYS_INLINE=inline -DSUITE_SECONDS=600
last_cov := -O0
link_cov := -Wl,--wrap=_exit,--wrap=abort
objects_cov := build/cov/test/coverage/exit.o
# The explorer has models in the place of the system, for the core alone.
flags_explore := -fno-pie -DHWT_ATOMIC_MODEL='"test/sim/atomic.h"'
libs_explore := -no-pie
flags_cov-explore := $(flags_explore) $(flags_cov) -fdata-sections
last_cov-explore := -O0
libs_cov-explore := -no-pie

# in WAYS, SOURCES: what is made of each in each way; .o is added for objects.
in = $(foreach w,$1,$(patsubst %.c,build/$w/%,$2))
ways := plain clang asan tsan late cov musl aarch64
spec := $(wildcard test/spec/*.c)
storm := $(wildcard test/stress/*.c)
misuse := $(wildcard test/misuse/*.c)
model := $(wildcard test/model/*.c) test/sim/plan.c
# With what programs of the explorer hold: see core.o.
explored := $(filter-out sys/system% observe/%,$(core)) \
	$(filter-out $(explored_alone),$(module_sources)) \
	$(patsubst %,test/explore/%.c,calls order verbs verbs_inside)
explorer := $(filter-out $(explored),$(wildcard test/explore/*.c)) \
	$(filter-out test/sim/plan.c,$(wildcard test/sim/*.c)) \
	test/script.c test/model/checker.c \
	$(wildcard modules/*/test/explore/*.c)

# Functions of the system that the suites replace, to make them fail.
wrapped := $(sort $(shell sed -n -e 's/^__wrap_\([a-z0-9_]*\).*/\1/p' \
	-e 's/^WRAP.[a-z *]*, \([a-z_]*\),.*/\1/p' $(spec)))

# The suites load the shared library too.
build/%/hwt-test: $$(call objects,$(spec)) $$(objects_$$*) \
		build/%/libhwt.a | build/plain/libhwt.so
	$(call say,LD)
	$(Q)$(link) $(wrapped:%=-Wl,--wrap=%) -o $@ $^ -lcriterion $(libs)

# The same suites with the library that is two files.
build/single/hwt-test: $(addsuffix .o,$(call in,plain,$(spec))) \
		build/single/hwt.o | build/plain/libhwt.so
	$(call say,LD)
	$(Q)$(link) $(wrapped:%=-Wl,--wrap=%) -o $@ $^ -lcriterion $(LDLIBS)

programs := test/stress/storm.c $(misuse)
$(call in,$(ways),$(programs)): %: %.o $$(objects_$$(way)) \
		build/$$(way)/libhwt.a
	$(link_program)

$(call in,$(ways),test/stress/storm.c): $$(call objects,$(storm))

# ThreadSanitizer watches the program, and not the library.
build/tsan/test/check/watched: build/tsan/test/check/watched.o \
		build/plain/libhwt.a
	$(link_program)

# The library with the system's functions under other names, to make them fail.
build/%/test/model/libhwt.o: build/%/libhwt.o test/sim/imports test/sim/plan.c
	$(call say,OBJCOPY)
	@mkdir -p $(@D)
	$(Q)test/sim/imports redefine >$@.names
	$(Q)$(cross)$(OBJCOPY) --redefine-syms=$@.names $< $@

build/%/test/model/model: $$(call objects,$(model)) $$(objects_$$*) \
		build/%/test/model/libhwt.o
	$(link_program)
build/fuzz/test/model/main.o: own = -DHWT_FUZZ

# The explorer has the system's functions under other names, and puts static
# data back before each execution: it has a section of its own. Not so what
# counts for gcov, in sections of its own, too.
build/%/core.o: $$(call objects,$(explored)) test/sim/sim.c
	$(call say,LD)
	$(Q)$(cc) $(CFLAGS) @build/$*/merge -nostdlib -r -o $@ $(filter %.o,$^)
	$(Q)sed -n 's/^simulated_\([a-z_]*\)(.*/\1 simulated_\1/p' \
		test/sim/sim.c >$@.names
	$(Q)$(OBJCOPY) --redefine-syms=$@.names $$(objdump -hw $@ | awk ' \
		$$2 ~ /^\.(data|bss)(\.|$$)/ && $$2 !~ /gcov|LPBX/ { \
			print "--rename-section " $$2 \
				"=hwt_data,alloc,load,data,contents" }') $@

build/%/explore: build/%/core.o $$(call objects,$(explorer))
	$(link_program)

# What is compiled with clang for its warnings alone.
only_compiled := $(patsubst %,build/clang/%.o,$(basename $(storm) $(misuse) \
	$(wildcard examples/*.c) $(recipes) $(loops)) $(perf_names))

# A goal's jobs say what they need.
ifneq ($(filter-out aarch64,$(ARCH)),)
$(error ARCH=$(ARCH): not known; aarch64 is)
endif
run = ONLY='$(ONLY)' STRESS='$(STRESS)' test/check/run
goal_of_check := check$(ARCH:%=-%)
ifneq ($(filter check,$(MAKECMDGOALS)),)
check: $(sort $(shell $(run) needs $(goal_of_check)))
endif
ifneq ($(filter check-all,$(MAKECMDGOALS)),)
check-all: $(sort $(shell $(run) needs check-all)) \
	$(if $(filter $(ONLY),*),$(only_compiled))
endif
check:
	@$(run) $(goal_of_check)
check-all:
	@$(run) check-all

# Objects tell who calls whom, those of each module that can be built.
tidy: build/plain/libhwt.a $(usable:%=build/plain/libhwt_%.a)
	@tools/tidy
mutants: build/plain/libhwt.so
	@test/mutants/run '$(MUTANTS)'
explore: build/explore/explore
	@build/explore/explore $(EXPLORE)
bare:
	@test/check/bare build/bare
fuzz: build/fuzz/test/model/model
	@test/model/fuzz $(FUZZ)

# A program, and after commas its arguments.
, := ,
coverage := build/cov/hwt-test build/cov/test/stress/storm,20 \
	build/cov/test/model/model,--steps,20000 \
	build/cov/test/model/model,--sweep \
	build/cov-explore/explore,--schedules,100 $(coverage_of)
coverage: $(foreach p,$(coverage),$(firstword $(subst $(,), ,$p)))
	@covered='$(covered)' test/coverage/run $(coverage)
