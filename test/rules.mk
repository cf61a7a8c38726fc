# SPDX-License-Identifier: Apache-2.0
#
# What the tests build and run; read by Makefile. The ways of building:
#
#   plain, clang   the user's flags, with CC and with a second compiler
#   asan           AddressSanitizer and UBSan
#   tsan           ThreadSanitizer
#   fuzz           libFuzzer
#   cov            counts for gcovr
#   noise          atomic operations come late: test/noise/noise.h
#   lto            optimized by the linker
#   musl           with musl for the C library, and test/runner for Criterion
#   explore        each atomic operation is a step of the explorer of
#                  interleavings; cov-explore counts there
#   aarch64, aarch64-c11   ARCH=aarch64: ConcurrencyKit and C11's atomics
#   s390x, riscv64         ARCH=s390x, riscv64: C11's atomics
#   smp, smp-c11   the same for aarch64, static, for a machine without files

STRESS ?= 100
SOAK ?= 600
FUZZ ?= 600
NOISE ?= 600
EXPLORE ?= --seconds 2

ifneq ($(filter check check-all check-musl,$(MAKECMDGOALS)),)
export WERROR := 1
endif
# For scripts, some of which run make.
export CC CXX CLANG CPPFLAGS CFLAGS LDFLAGS LDLIBS STRESS SHORT MAKE_COMMAND

cc_clang = $(CLANG)
flags_asan := -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer
cc_fuzz = $(CLANG)
flags_fuzz := -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
libs_fuzz := -fsanitize=fuzzer
# Compiled with the calls of ThreadSanitizer, and linked with others that count
# which cache lines move: test/transfers/simulator.h.
flags_counted := -fsanitize=thread -DHWT_TAKES_LINE=simulated_take \
	-include test/transfers/take.h
flags_cores := -DHWT_ATOMIC_C11 -DHWT_ATOMIC_WIDE
flags_noise := -D_GNU_SOURCE= -include test/noise/noise.h
last_lto := -flto
cc_musl := musl-gcc
flags_musl := -isystem build/musl/include
build/musl/flags: | build/musl/include
# Of these, headers are enough.
build/musl/include:
	@mkdir -p $@
	@ln -sf /usr/include/bsd /usr/include/hiredis $@
# Where there is no Criterion.
define runner_way
flags_$1 += -Itest/runner
runner_$1 := build/$1/test/runner/runner.o
endef
$(foreach w,musl $(filter s390x riscv64,$(emulated)), \
	$(eval $(call runner_way,$w)))
# Each condition as it stands in the source, assertions left out: what they
# find is never there, nor is ThreadSanitizer; and each function once, not in
# copies. Counters are added
# to by many threads. A process that leaves by _exit or abort writes its counts
# as well.
flags_cov := --coverage -fprofile-update=atomic -DNDEBUG -DHWT_TELLS_NOTHING \
	-DALWAYS_INLINE=inline
last_cov := -O0
link_cov := -Wl,--wrap=_exit,--wrap=abort
objects_cov := build/cov/test/coverage/exit.o
# The explorer has models in the place of the system, for the core alone.
flags_explore := -fno-pie -DHWT_ATOMIC_MODEL='"test/sim/atomic.h"'
libs_explore := -no-pie
flags_cov-explore := $(flags_explore) $(flags_cov) -fdata-sections
last_cov-explore := -O0
libs_cov-explore := -no-pie

# ARCH: another machine, under qemu-user. For aarch64, Debian's libraries lie in
# a folder of their own.
qemu = $(shell command -v qemu-$(ARCH) || echo /usr/bin/qemu-$(ARCH))
sysroot := $(if $(filter aarch64,$(ARCH)),build/aarch64/sysroot, \
	/usr/$(ARCH)-linux-gnu)
sysroot_libs := $(sysroot)/usr/lib/aarch64-linux-gnu
libs_aarch64 := -L$(sysroot_libs) \
	-Wl,-rpath-link,$(sysroot_libs):$(sysroot)/lib/aarch64-linux-gnu
libs_aarch64-c11 := $(libs_aarch64)
flags_aarch64-c11 := -DHWT_ATOMIC_C11
define emulated_way
cc_$1 := $(ARCH)-linux-gnu-gcc
flags_$1 += -isystem $(sysroot)/usr/include -DHWT_EMULATED
objects_$1 := build/$1/test/check/emulated.o
build/$1/flags: | $(sysroot)
build/$1/test/check/emulated.o: \
	own = -DEMULATOR='"$(qemu)"' -DSYSROOT='"$(abspath $(sysroot))"'
endef
$(foreach w,$(emulated),$(eval $(call emulated_way,$w)))

build/aarch64/sysroot: tools/sysroot
	@tools/sysroot arm64 $@

# Made by ConcurrencyKit's and C11's atomics for make check-smp.
smp := smp smp-c11
$(foreach w,$(smp),$(eval cc_$w := aarch64-linux-gnu-gcc))
flags_smp := -isystem build/aarch64/sysroot/usr/include
flags_smp-c11 := -DHWT_ATOMIC_C11
$(foreach w,$(smp),$(eval link_$w := -static))
build/smp/flags: | build/aarch64/sysroot
build/aarch64/kernel: tools/sysroot
	@tools/sysroot arm64 $@ linux-image-cloud-arm64

# in WAYS, SOURCES: what is made of each in each way; .o is added for objects.
in = $(foreach w,$1,$(patsubst %.c,build/$w/%,$2))
ways := plain clang asan tsan cov noise musl $(smp) $(emulated)
spec := $(wildcard test/spec/*.c)
stress := $(wildcard test/stress/*.c)
misuse := $(wildcard test/misuse/*.c)
faults := $(wildcard test/faults/*.c)
# The suite model has the parts of the program model but for its main.
model := $(filter-out test/random/model.c,$(wildcard test/random/*.c))
fuzz := test/fuzz/fuzz.c $(model)
explorer := $(filter-out test/explore/selftest.c,$(wildcard test/explore/*.c)) \
	$(wildcard test/sim/*.c) \
	test/script.c \
	$(wildcard modules/*/test/explore/*.c)
explored := $(filter-out core/system% observe/%,$(core)) \
	$(filter-out $(explored_alone),$(module_sources))

# Functions of the system that the suites replace, to make them fail.
wrapped := $(sort $(shell sed -n 's/^__wrap_\([a-z0-9_]*\).*/\1/p' $(spec)))

# The suites load the shared library too.
build/%/hwt-test: $$(call objects,$(spec) $(model)) $$(objects_$$*) \
		$$(runner_$$*) build/%/libhwt.a | \
		build/$$(if $$(cross)$$(runner_$$*),$$*,plain)/libhwt.so
	$(call say,LD)
	$(Q)$(link) $(wrapped:%=-Wl,--wrap=%) -o $@ $^ \
		$(if $(runner_$(way)),,-lcriterion) $(libs)

# The same suites with the library that is two files.
build/single/hwt-test: $(addsuffix .o,$(call in,plain,$(spec) $(model))) \
		build/single/hwt.o | build/plain/libhwt.so
	$(call say,LD)
	$(Q)$(link) $(wrapped:%=-Wl,--wrap=%) -o $@ $^ -lcriterion $(LDLIBS)

programs := $(stress) $(misuse) test/random/model.c
$(call in,$(ways),$(programs)): %: %.o $$(objects_$$(way)) \
		build/$$(way)/libhwt.a
	$(link_program)

$(call in,$(ways),test/random/model.c): $$(call objects,$(model))

# ThreadSanitizer watches the program, and not the library.
build/tsan/test/check/watched: build/tsan/test/check/watched.o \
		build/plain/libhwt.a
	$(link_program)

# The library with the system's functions under other names, to make them fail.
build/%/test/faults/libhwt.o: build/%/libhwt.o test/faults/imports \
		test/faults/tables.c
	$(call say,OBJCOPY)
	@mkdir -p $(@D)
	$(Q)test/faults/imports test/faults/tables.c redefine >$@.names
	$(Q)$(OBJCOPY) --redefine-syms=$@.names $< $@

build/%/test/faults/faults: $$(call objects,$(faults)) $$(objects_$$*) \
		build/%/test/faults/libhwt.o
	$(link_program)

build/fuzz/test/fuzz/fuzz: $$(call objects,$(fuzz)) build/fuzz/libhwt.a
	$(link_program)

build/asan/test/fuzz/replay: $$(call objects,$(fuzz) test/fuzz/replay.c) \
		build/asan/libhwt.a
	$(link_program)

# The explorer puts the core's data back before each execution: it has sections
# of its own. Not so what counts for gcov, in sections of its own, too.
$(addsuffix .o,$(call in,explore cov-explore,$(explored))): \
	own = -DSIM_SHIM -include test/sim/sim.h

build/%/core.o: $$(call objects,$(explored))
	$(call say,LD)
	$(Q)$(cc) $(CFLAGS) @build/$*/merge -nostdlib -r -o $@ $^
	$(Q)$(OBJCOPY) --rename-section .data=hwt_data \
		--rename-section .bss=hwt_bss $$(objdump -hw $@ | awk ' \
		$$2 ~ /^\.(data|bss)\./ && $$2 !~ /gcov|LPBX/ { \
			split($$2, word, "."); \
			print "--rename-section " $$2 "=hwt_" word[2] }') $@

build/%/explore: build/%/core.o $$(call objects,$(explorer))
	$(link_program)

# The explorer alone, against plain search on random programs.
build/explore/selftest: $$(call objects,$(patsubst %,test/explore/%.c, \
		selftest explore))
	$(link_program)

# What is compiled with clang for its warnings alone.
only_compiled := $(patsubst %,build/clang/%.o,$(basename $(stress) $(misuse) \
	$(wildcard examples/*.c) $(recipes) $(loops) $(mains)) $(perf_names))
untraced_stress := $(wildcard test/stress/fork_*.c) test/stress/guess.c
alone_tsan := $(filter-out %/fork,$(filter build/tsan/%,$(alone)))

ifneq ($(emulated),)
check: $(foreach w,$(emulated),build/$w/libhwt.so $(call in,$w,$(stress) \
		test/random/model.c) $(perf_names:%=build/$w/%.o)) \
		$(patsubst %.c,build/$(ARCH)/%.o,$(wildcard examples/*.c) \
		$(recipes)) \
		$(if $(SHORT),,$(emulated:%=build/%/hwt-test))
	@test/check/run_emulated $(ARCH)
check-all:
	$(error check has all that there is for ARCH=$(ARCH))
ifeq ($(ARCH),aarch64)
check: $(emulated:%=build/%/test/check/fences.o)
endif
else ifeq ($(origin ARCH),command line)
$(error ARCH=$(ARCH): not known; $(machines) are)
else
check: build/plain/libhwt.so build/plain/hwt-test \
		build/asan/hwt-test build/lto/libhwt.a \
		build/explore/explore build/plain/test/random/model \
		build/single/hwt.c build/tsan/test/check/watched \
		$(call in,plain,$(stress)) \
		$(call in,tsan,$(filter-out $(untraced_stress),$(stress))) \
		$(filter build/plain/%,$(alone))
	@test/check/run check
check-all: build/plain/libhwt.so build/explore/explore \
		build/clang/hwt-test $(examples) $(wheel) $(perf_programs) \
		$(call in,plain,$(stress) test/random/model.c) \
		$(call in,tsan,$(filter-out $(untraced_stress),$(stress))) \
		build/explore/selftest build/asan/test/random/model \
		$(call in,asan,$(misuse)) build/asan/test/fuzz/replay \
		build/fuzz/test/fuzz/fuzz $(only_compiled) \
		$(call in,plain asan,test/faults/faults.c) \
		build/noise/hwt-test $(call in,noise,$(stress)) \
		$(filter build/asan/%,$(alone)) $(alone_tsan) \
		build/single/hwt-test build/abi/libhwt.so \
		$(MODULES:%=build/abi/libhwt_%.so)
	@test/check/run check-all
endif

check-musl: build/musl/hwt-test $(examples_musl) \
		$(call in,musl,$(stress) test/random/model.c)
	@test/check/run check-musl
check-systems:
	@test/check/systems build/systems
check-smp: $(call in,$(smp),$(stress) test/check/smp_init.c) \
		| build/aarch64/kernel
	@test/check/run_smp
$(call in,$(smp),test/check/smp_init.c): %: %.o
	$(link_program)

build/cores/transfers: $(addprefix build/cores/test/transfers/,simulator.o \
		lines.o transfers.o) build/counted/test/transfers/subjects.o \
		$$(patsubst %,build/counted/%.o,$(basename $(core)))
	$(call say,LD)
	$(Q)$(link) -o $@ $^ -latomic $(libs)
build/cores/test/transfers/simulator.o: own = -Wno-builtin-declaration-mismatch
transfers: build/cores/transfers
	@$< $(TRANSFERS)

# Objects tell who calls whom, those of each module that can be built.
tidy: build/plain/libhwt.a $(usable:%=build/plain/libhwt_%.a)
	@tools/tidy
analyze:
	@tools/analyze
compile_commands.json: build/clang/flags force
	@tools/compile_commands build/clang/hwt-test \
		$(MODULES:%=build/clang/libhwt_%.a) >$@
mutants: build/plain/libhwt.so
	@test/mutants/run '$(MUTANTS)'
faults: build/plain/test/faults/faults
	@test/faults/imports test/faults/tables.c check build/plain/libhwt.o
	@build/plain/test/faults/faults all
explore: build/explore/explore
	@build/explore/explore $(EXPLORE)
soak: $(call in,plain,test/random/model.c $(stress))
	@test/check/soak $(SOAK) $^
bare:
	@test/check/bare build/bare
valgrind: $(call in,plain,$(stress))
	@test/check/valgrind
noise: build/noise/hwt-test $(call in,noise,$(stress))
	@test/noise/run $(NOISE)
fuzz: build/fuzz/test/fuzz/fuzz
	@test/fuzz/run $(FUZZ)

# A program, and after commas its arguments.
, := ,
coverage := build/cov/hwt-test $(addsuffix $(,)20,$(call in,cov,$(stress))) \
	build/cov/test/random/model,--steps,300000,--quiet \
	build/cov/test/faults/faults \
	build/cov-explore/explore,--schedules,1000 $(coverage_of)
coverage: $(foreach p,$(coverage),$(firstword $(subst $(,), ,$p)))
	@covered='$(covered)' test/coverage/run $(coverage)
