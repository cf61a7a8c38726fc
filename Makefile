# SPDX-License-Identifier: Apache-2.0
#
# hwt - a hashed wheel timer for network programs
#
#   make            builds libhwt.a and libhwt.so in build/plain
#   make demo       serves HTTP under load and shows what the timer did
#   make check      builds and runs every test; the last line counts them
#   make fuzz       fuzzes for FUZZ=600 seconds
#   make coverage   which lines and branches of the core the tests take
#   make faults     makes each call of the system fail, every one of each kind
#   make tidy       checks the style of the sources; a part of check
#   make analyze    clang's analyzer, clang-tidy, cppcheck; a part of check
#   make mutants    deliberate faults, each of which something must find: those
#                   of test/mutants/list, and 40 that are generated from the
#                   sources, at random (SEED=N repeats them). MUTANTS=200: so
#                   many; MUTANTS=all; MUTANTS=pattern: those whose name or
#                   text matches
#   make explore    the interleavings, long: EXPLORE='--seconds 60'; more
#                   options are at the top of test/explore/main.c
#   make soak       minutes of everything at once; figures in the last lines
#   make valgrind   the stress programs under memcheck; check has some of it
#   make noise      the suite and the stress programs with atomic operations
#                   that come late, others each time, for NOISE=600 seconds
#   make perf       measures, beside what else there is: 16 minutes. Tables and
#                   plots go to build/perf; PERF='pair --rounds 7' and more:
#                   see the top of perf/run
#   make perf-full  the same with all cases: hours
#   make deps       installs what demo and check need (they do so themselves)
#   make install    into PREFIX, /usr/local unless told otherwise
#   make uninstall  takes that away again
#   make clean      removes build
#   make help       shows this
#
# Yours to set; what we need ourselves is added, never replaced:
#
#   CC CPPFLAGS CFLAGS LDFLAGS LDLIBS
#   PREFIX LIBDIR INCLUDEDIR DOCDIR MANDIR   where things are installed
#   DESTDIR          put in front of all of these
#   V=1              shows the commands
#   WERROR=1         a warning is an error, as it is in make check
#   STRESS=300       make check: the stress programs' work, in percent
#   SOAK=3600        make soak: how many seconds, 600 unless told otherwise
#   ARCH=aarch64     make check: cross-built, the specifications and the stress
#                    programs under qemu-user (portability: it shows no weak
#                    memory)
#
# build has one folder per way of building: plain, clang (a second compiler),
# asan (AddressSanitizer, UBSan), tsan (ThreadSanitizer on C11 atomics), fuzz
# (libFuzzer), cov (counts for gcovr), noise (atomic operations come late), and
# explore (each atomic operation is a step of the explorer of interleavings);
# with ARCH=aarch64 aarch64 and aarch64-c11 (the same on C11 atomics).

.SUFFIXES:
.DELETE_ON_ERROR:

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin CXX),default)
CXX := g++
endif
CLANG ?= clang
OBJCOPY ?= objcopy
INSTALL ?= install
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR ?= $(PREFIX)/share/doc/hwt
MANDIR ?= $(PREFIX)/share/man
STRESS ?= 100
SOAK ?= 600
FUZZ ?= 600
NOISE ?= 600
EXPLORE ?= --seconds 2

ifneq ($(filter check,$(MAKECMDGOALS)),)
export WERROR := 1
endif

# demo, check or perf alone use all cores, unless -j says otherwise; what is
# measured is one program at a time.
ifneq ($(filter demo check perf perf-full,$(MAKECMDGOALS)),)
ifeq ($(words $(MAKECMDGOALS))$(filter -j%,$(MAKEFLAGS)),1)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
endif

# What must be there before the compilers are asked what they know, and before
# the first file is compiled. make -n installs nothing.
sets_check := $(if $(filter aarch64,$(ARCH)),aarch64,check)
sets_deps := demo check
sets_demo := demo
sets_coverage := coverage
$(foreach goal,analyze fuzz mutants noise valgrind, \
	$(eval sets_$(goal) := check))
sets_perf := perf
sets_perf-full := perf
$(foreach goal,explore faults soak,$(eval sets_$(goal) := build))
sets := $(sort $(foreach goal,$(MAKECMDGOALS),$(sets_$(goal))))
ifneq ($(sets),)
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS))),)
ifneq ($(shell CC='$(CC)' CXX='$(CXX)' CLANG='$(CLANG)' \
	tools/deps $(sets) >&2 && echo there),there)
$(error what is needed is not there)
endif
endif
endif

# Another machine than this one; its libraries lie in a folder of their own.
ifeq ($(ARCH),aarch64)
cross := aarch64-linux-gnu-
sysroot := build/aarch64/sysroot
qemu := $(shell command -v qemu-aarch64 || echo /usr/bin/qemu-aarch64)
else ifeq ($(origin ARCH),command line)
$(error ARCH=$(ARCH): not known; aarch64 is)
endif

# The sources say themselves what they are, by their place.
core := $(wildcard *.c core/*.c executor/*.c)
tests := $(wildcard test/spec/*.c)
stress := $(wildcard test/stress/*.c)
soak := $(wildcard test/soak/*.c)
misuse := $(wildcard test/misuse/*.c)
explore := $(wildcard test/explore/*.c)
random := $(wildcard test/random/*.c)
# The suite model has the parts of the program model but for its main.
random_parts := $(filter-out test/random/model.c,$(random))
faults := $(wildcard test/faults/*.c)
# What perf measures is built once for each SUBJECT. A folder of it that has a
# main.c is a program for each of its other files.
perf_loads := $(wildcard perf/*.c)
perf_mains := $(wildcard perf/*/main.c)
perf_files := $(filter-out $(perf_mains),$(wildcard $(perf_mains:main.c=*.c)))
examples := $(wildcard examples/*.c)
fuzz_parts := $(filter-out test/fuzz/replay.c,$(wildcard test/fuzz/*.c)) \
	$(wildcard test/random/checker*.c)
# Of the examples, these are programs; the others are parts of each of them.
example_mains := $(filter $(addprefix examples/,demo.c httpd.c hostile.c), \
	$(examples))
example_parts := $(filter-out $(example_mains),$(examples))

# The header knows the version.
number = $(shell sed -n 's/^.define HWT_VERSION_$1 //p' hwt.h)
version := $(call number,MAJOR).$(call number,MINOR).$(call number,PATCH)
soname := libhwt.so.$(call number,MAJOR)
so := libhwt.so.$(version)

# compile and link are commands; $1 is the way of building.
ways := plain clang asan tsan fuzz cov noise $(if $(cross),aarch64 aarch64-c11)
cc_plain = $(CC)
cc_clang = $(CLANG)
cc_asan = $(CC)
cc_tsan = $(CC)
cc_explore = $(CC)
cc_fuzz = $(CLANG)
cc_cov = $(CC)
cc_noise = $(CC)
flags_asan := -fsanitize=address,undefined -fno-sanitize-recover=all \
	-fno-omit-frame-pointer
flags_tsan := -fsanitize=thread -DHWT_ATOMIC_C11
libs_tsan := -latomic
flags_noise := -D_GNU_SOURCE= -include test/noise/noise.h
flags_fuzz := -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all -fno-omit-frame-pointer
libs_fuzz := -fsanitize=fuzzer
# Each condition as it stands in the source, assertions left out: what they
# find is never there. Counters are added to by many threads. A process that
# leaves by _exit writes its counts as well.
flags_cov := --coverage -fprofile-update=atomic -DNDEBUG
link_cov := -Wl,--wrap=_exit
last_cov := -O0
cc_aarch64 = $(cross)gcc
cc_aarch64-c11 = $(cross)gcc
flags_aarch64 := -isystem $(sysroot)/usr/include -DHWT_EMULATED
flags_aarch64-c11 := $(flags_aarch64) -DHWT_ATOMIC_C11
sysroot_libs := $(sysroot)/usr/lib/aarch64-linux-gnu
libs_aarch64 := -L$(sysroot_libs) \
	-Wl,-rpath-link,$(sysroot_libs):$(sysroot)/lib/aarch64-linux-gnu
libs_aarch64-c11 := $(libs_aarch64) -latomic
# For tools that know one machine only: those of the way's own machine.
cross_of = $(if $(filter aarch64%,$1),$(cross))
emulated_of = $(if $(call cross_of,$1),build/$1/test/check/emulated.o)
warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wvla -Wundef \
	-Wformat=2 -Wdouble-promotion -Walloca -Wold-style-definition \
	-Wmissing-declarations -Wredundant-decls -Wdate-time
# What gcc knows and clang does not.
gcc_warnings := -Wduplicated-cond -Wduplicated-branches -Wlogical-op \
	-Wcast-align=strict -Wjump-misses-init
gcc_knows = $(shell : | $(cc_$1) $(gcc_warnings) -Werror -E -x c - \
	>/dev/null 2>&1 && echo yes)
$(foreach way,$(ways),$(eval more_$(way) := \
	$(if $(call gcc_knows,$(way)),$(gcc_warnings))))
compile = $(cc_$1) -std=gnu11 -I. $(CPPFLAGS) -pthread -fvisibility=hidden \
	$(warnings) $(more_$1) \
	$(if $(filter-out 0,$(WERROR)),-Werror) $(flags_$1) \
	$(CFLAGS) $(last_$1)
link = $(cc_$1) -pthread $(flags_$1) $(CFLAGS) $(link_$1) $(LDFLAGS)
libs = $(libs_$1) $(LDLIBS)

# Functions of the system that the tests replace, to make them fail.
wrapped := $(sort $(shell sed -n 's/^__wrap_\([a-z0-9_]*\).*/\1/p' $(tests) \
	/dev/null))

# Benchmarks print what they were built with.
flags_said = $(subst ",,$(subst ',,$(strip $(CPPFLAGS) $(CFLAGS))))
# The explorer has models in the place of the system, for the core alone.
explored := $(filter-out core/system.c,$(core))
flags_explore := -fno-pie -DHWT_ATOMIC_MODEL='"test/explore/atomic_model.h"'
libs_explore := -no-pie
$(foreach way,explore cov-explore,$(explored:%.c=build/$(way)/%.o)): \
	own = -DMODEL_SHIM -include test/explore/model.h
cc_cov-explore = $(CC)
flags_cov-explore := $(flags_explore) $(flags_cov) -fdata-sections
libs_cov-explore := -no-pie
last_cov-explore := -O0

$(foreach way,plain clang aarch64,$(eval build/$(way)/perf/%.o: \
	own = -DHWT_CFLAGS='"$$(cc_$(way)) $$(flags_said)"'))
$(patsubst %,build/%/test/check/emulated.o,aarch64 aarch64-c11): \
	own = -DEMULATOR='"$(qemu)"' -DSYSROOT='"$(CURDIR)/$(sysroot)"'

, := ,
ifeq ($(filter-out 0,$(V)),)
Q := @
say = @echo '  $1 $@'
else
say = @:
endif

# What timers are compared, each a header; those of others, and what of them
# must be there: a header, how it is compiled with and linked. A peer is the
# first word of its subjects' names; what is not listed needs nothing.
subjects := $(patsubst perf/subject/%.h,%,$(shell grep -l \
	'^.define SUBJECT_NAME' /dev/null $(wildcard perf/subject/*.h)))
own_subjects := $(filter hwt hwt_relaxed mutex_wheel,$(subjects))
peer_of = $(firstword $(subst _, ,$1))
peer_header_libevent := event2/event.h
peer_libs_libevent := -levent_core -levent_pthreads
peer_header_libev := ev.h
peer_libs_libev := -lev
peer_header_libuv := uv.h
peer_libs_libuv := -luv
peer_header_glib := glib.h
peer_flags_glib = $(subst -I,-isystem ,$(shell pkg-config --cflags glib-2.0))
peer_libs_glib = $(shell pkg-config --libs glib-2.0)
peer_header_nng := nng/nng.h
peer_libs_nng := -lnng
peer_header_asio := boost/asio/version.hpp
peer_libs_asio := -lstdc++
peer_objects_asio := $(patsubst %.cc,build/plain/%.o, \
	$(wildcard perf/subject/asio.cc))
hash := \#
peer_there = $(if $(peer_header_$1),$(shell \
	echo '$(hash)include <$(peer_header_$1)>' | $(CXX) $(peer_flags_$1) \
	-E -x c++ - >/dev/null 2>&1 && echo yes),yes)

# What is built.
libraries := build/plain/libhwt.a build/plain/libhwt.so
# perf_built WAY: what make check has, which needs no peer. The floor is one of
# touch alone.
perf_built = $(perf_files:%.c=build/$1/%) \
	$(foreach subject,$(own_subjects), \
	$(perf_loads:%.c=build/$1/%/$(subject))) \
	$(if $(filter floor,$(subjects)),build/$1/perf/touch/floor)
perf_programs := $(call perf_built,plain)
# What is to be measured says what is built for it, as far as it can be. Those
# of perf/peer are built by programs of their own.
ifneq ($(filter perf perf-full,$(MAKECMDGOALS)),)
wanted_full := $(if $(filter perf-full,$(MAKECMDGOALS)),--full)
wanted := $(shell perf/run --list $(wanted_full) $(PERF))
wanted_programs := $(filter $(wanted),$(perf_programs) \
	$(foreach subject,$(filter-out $(own_subjects),$(subjects)), \
	$(if $(call peer_there,$(call peer_of,$(subject))), \
	$(perf_loads:%.c=build/plain/%/$(subject)))))
endif
example_programs := $(example_mains:%.c=build/plain/%)
soak_programs := $(soak:%.c=build/plain/%) build/plain/test/random/model
fork_stress := $(wildcard test/stress/fork_*.c)
clang_objects := $(patsubst %.c,build/clang/%.o, \
	$(stress) $(soak) $(misuse) $(examples)) \
	$(addsuffix .o,$(call perf_built,clang)) \
	$(perf_mains:%.c=build/clang/%.o)
check_programs := $(libraries) $(patsubst %,build/%/libhwt.a, \
	$(filter-out cov noise,$(ways))) \
	$(perf_programs) $(example_programs) \
	build/explore/explore build/explore/selftest \
	build/plain/hwt-test $(stress:%.c=build/plain/%) $(soak_programs) \
	build/clang/hwt-test $(clang_objects) \
	build/asan/hwt-test $(misuse:%.c=build/asan/%) \
	build/asan/test/random/model \
	build/fuzz/test/fuzz/fuzz build/asan/test/fuzz/replay \
	build/plain/test/faults/faults build/asan/test/faults/faults \
	$(patsubst %.c,build/tsan/%,$(filter-out $(fork_stress),$(stress)))
check_run := test/check/run
ifdef cross
check_programs := $(foreach way,aarch64 aarch64-c11, \
	build/$(way)/libhwt.so build/$(way)/hwt-test \
	build/$(way)/test/check/fences.o \
	$(stress:%.c=build/$(way)/%) \
	$(addsuffix .o,$(call perf_built,$(way)))) \
	$(examples:%.c=build/aarch64/%.o)
check_run := test/check/run_aarch64
endif

.PHONY: all help deps demo check tidy analyze explore mutants faults soak fuzz
.PHONY: noise valgrind coverage perf perf-full
.PHONY: install uninstall clean force

all: $(libraries)

help:
	@awk 'NR > 2 { if (!/^#/) exit; sub(/^# ?/, ""); print }' Makefile

# Done already, as this file was read.
deps:
	@:

ifdef cross
$(sysroot):
	@tools/sysroot arm64 $@
endif

demo: $(example_programs)
	@build/plain/examples/demo

# For what runs make itself.
told = CC='$(CC)' CLANG='$(CLANG)' CPPFLAGS='$(CPPFLAGS)' CFLAGS='$(CFLAGS)' \
	LDFLAGS='$(LDFLAGS)' LDLIBS='$(LDLIBS)' MAKE_COMMAND='$(MAKE_COMMAND)'

check: $(check_programs) | $(filter demo,$(MAKECMDGOALS))
	@$(told) CXX='$(CXX)' STRESS='$(STRESS)' $(check_run)

mutants: build/plain/libhwt.so
	@$(told) OBJCOPY='$(OBJCOPY)' test/mutants/run '$(MUTANTS)'

faults: build/plain/test/faults/faults
	@test/faults/imports check build/plain/libhwt.o
	@build/plain/test/faults/faults all

tidy:
	@tools/tidy

analyze:
	@tools/analyze

explore: build/explore/explore
	@build/explore/explore $(EXPLORE)

soak: $(soak_programs)
	@test/check/soak $(SOAK) $^

valgrind: $(stress:%.c=build/plain/%)
	@test/check/valgrind

noise: build/noise/hwt-test $(stress:%.c=build/noise/%)
	@test/noise/run $(NOISE)

fuzz: build/fuzz/test/fuzz/fuzz
	@test/fuzz/run $(FUZZ)

# Which lines and branches of the core the tests take.
coverage := build/cov/hwt-test $(stress:%.c=build/cov/%,20) \
	build/cov/test/random/model,--steps,300000,--quiet \
	build/cov/test/faults/faults \
	build/cov-explore/explore
coverage: $(foreach p,$(coverage),$(firstword $(subst $(,), ,$p)))
	@test/coverage/run $(coverage)

perf perf-full: $(wanted_programs)
	@for build in $(sort $(foreach peer,$(notdir $(wanted)), \
		$(wildcard perf/peer/$(peer)/build))); do \
		$(told) nice $$build build/plain || :; done
	@perf/run $(if $(filter perf-full,$@),--full) $(PERF)

clean:
	rm -rf build

# The rules for each way of building. The file flags changes when the commands
# do, so that no object stays that was made by others.
define objects
build/$1/flags: force
	@mkdir -p $$(@D)
	@echo '$$(subst ','\'',$$(call compile,$1) $$(call link,$1))' >$$@.new
	@if cmp -s $$@.new $$@; then rm $$@.new; else mv $$@.new $$@; fi

build/$1/%.o: %.c build/$1/flags | $(sysroot)
	$$(call say,CC)
	@mkdir -p $$(@D)
	$$(Q)$$(call compile,$1) $$(own) -MMD -MP -c -o $$@ $$<

build/$1/pic/%.o: %.c build/$1/flags | $(sysroot)
	$$(call say,CC)
	@mkdir -p $$(@D)
	$$(Q)$$(call compile,$1) -fPIC -MMD -MP -c -o $$@ $$<
endef
$(foreach way,$(ways) explore cov-explore,$(eval $(call objects,$(way))))

define rules
# One object with its inner names made local: a program that links it may use
# the same names for its own.
build/$1/libhwt.a: $(core:%.c=build/$1/%.o)
	$$(call say,AR)
	$$(Q)$$(cc_$1) $$(CFLAGS) -nostdlib -r -o build/$1/libhwt.o $$^
	$$(Q)$(call cross_of,$1)$$(OBJCOPY) --localize-hidden \
		build/$1/libhwt.o
	$$(Q)rm -f $$@
	$$(Q)$(call cross_of,$1)$$(AR) rcs $$@ build/$1/libhwt.o

build/$1/hwt-test: $(patsubst %.c,build/$1/%.o,$(tests) $(random_parts)) \
		build/$1/libhwt.a $(call emulated_of,$1) \
		| build/$(if $(call cross_of,$1),$1,plain)/libhwt.so
	$$(call say,LD)
	$$(Q)$$(call link,$1) $(wrapped:%=-Wl,--wrap=%) -o $$@ $$^ \
		-lcriterion $$(call libs,$1)

build/$1/test/random/model: $(random_parts:%.c=build/$1/%.o)
$(patsubst %.c,build/$1/%,$(stress) $(soak) $(misuse) test/random/model.c): \
		%: %.o $(call emulated_of,$1) build/$1/libhwt.a
	$$(call say,LD)
	$$(Q)$$(call link,$1) -o $$@ $$^ $$(call libs,$1)

# The library with the system's functions under other names, to make them fail.
build/$1/test/faults/libhwt.o: build/$1/libhwt.a test/faults/imports \
		test/faults/system.c
	$$(call say,OBJCOPY)
	$$(Q)mkdir -p $$(@D)
	$$(Q)test/faults/imports redefine >$$@.names
	$$(Q)$$(OBJCOPY) --redefine-syms=$$@.names build/$1/libhwt.o $$@

build/$1/test/faults/faults: $(faults:%.c=build/$1/%.o) \
		build/$1/test/faults/libhwt.o
	$$(call say,LD)
	$$(Q)$$(call link,$1) -o $$@ $$^ $$(call libs,$1)
endef
$(foreach way,$(ways),$(eval $(call rules,$(way))))

# The explorer puts the core's data back before each execution: it has sections
# of its own. Not so what counts for gcov, in sections of its own, too.
explore_parts := $(filter-out test/explore/selftest.c,$(explore))
define explore_rules
build/$1/core.o: $(explored:%.c=build/$1/%.o)
	$$(call say,LD)
	$$(Q)$$(cc_$1) $$(CFLAGS) -nostdlib -r -o $$@ $$^
	$$(Q)$$(OBJCOPY) --rename-section .data=hwt_data \
		--rename-section .bss=hwt_bss $$$$(objdump -hw $$@ | awk ' \
		$$$$2 ~ /^\.(data|bss)\./ && $$$$2 !~ /gcov|LPBX/ { \
			split($$$$2, word, "."); \
			print "--rename-section " $$$$2 "=hwt_" word[2] }') $$@

build/$1/explore: build/$1/core.o $(explore_parts:%.c=build/$1/%.o)
	$$(call say,LD)
	$$(Q)$$(call link,$1) -o $$@ $$^ $$(call libs,$1)
endef
$(foreach way,explore cov-explore,$(eval $(call explore_rules,$(way))))

build/cov/hwt-test $(stress:%.c=build/cov/%) build/cov/test/random/model \
		build/cov/test/faults/faults: \
		build/cov/test/coverage/exit.o

# The explorer alone, against plain search on random programs.
build/explore/selftest: $(patsubst %,build/explore/test/explore/%.o, \
		selftest explore)
	$(call say,LD)
	$(Q)$(call link,explore) -o $@ $^ $(call libs,explore)

# Code stays mapped after dlclose: a worker may be running it.
define shared_rules
build/$1/$(so): $(core:%.c=build/$1/pic/%.o) packaging/hwt.map
	$$(call say,LD)
	$$(Q)$$(call link,$1) -shared -Wl,-soname,$(soname) -Wl,-z,nodelete \
		-Wl,-z,defs -Wl,--version-script=packaging/hwt.map \
		-o $$@ $$(filter %.o,$$^) $$(call libs,$1)

build/$1/libhwt.so: build/$1/$(so)
	$$(Q)ln -sf $(so) build/$1/$(soname)
	$$(Q)ln -sf $(soname) $$@
endef
$(foreach way,plain $(if $(cross),aarch64 aarch64-c11), \
	$(eval $(call shared_rules,$(way))))

build/fuzz/test/fuzz/fuzz: $(fuzz_parts:%.c=build/fuzz/%.o) \
		build/fuzz/libhwt.a
	$(call say,LD)
	$(Q)$(call link,fuzz) -o $@ $^ $(call libs,fuzz)

build/asan/test/fuzz/replay: $(fuzz_parts:%.c=build/asan/%.o) \
		build/asan/test/fuzz/replay.o build/asan/libhwt.a
	$(call say,LD)
	$(Q)$(call link,asan) -o $@ $^ $(call libs,asan)

$(foreach file,$(perf_files),$(eval \
	$(file:%.c=build/plain/%): build/plain/$(dir $(file))main.o))
$(perf_files:%.c=build/plain/%): %: %.o build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(call link,plain) -o $@ $(filter %.o,$^) build/plain/libhwt.a \
		-lm $(LDLIBS)

# $1 is the way of building, $2 the load, $3 the subject.
define load_rules
build/$1/perf/$2/$3.o: perf/$2.c build/$1/flags | $(sysroot)
	$$(call say,CC)
	@[ ! -f $$(@D) ] || rm $$(@D)
	@mkdir -p $$(@D)
	$$(Q)$$(call compile,$1) $$(own) $$(peer_flags_$(call peer_of,$3)) \
		-DSUBJECT='"perf/subject/$3.h"' -MMD -MP -c -o $$@ $$<

build/$1/perf/$2/$3: build/$1/perf/$2/$3.o build/$1/libhwt.a \
		$$(peer_objects_$(call peer_of,$3))
	$$(call say,LD)
	$$(Q)$$(call link,$1) -o $$@ $$(filter %.o %.a,$$^) \
		$$(peer_libs_$(call peer_of,$3)) -lm $$(call libs,$1)
endef
$(foreach way,plain clang $(if $(cross),aarch64 aarch64-c11), \
	$(foreach load,$(perf_loads:perf/%.c=%), \
	$(foreach subject,$(subjects), \
	$(eval $(call load_rules,$(way),$(load),$(subject))))))

build/plain/perf/subject/%.o: perf/subject/%.cc build/plain/flags
	$(call say,CXX)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -I. $(CPPFLAGS) -pthread -Wall -Wextra \
		$(if $(filter-out 0,$(WERROR)),-Werror) $(CFLAGS) \
		-MMD -MP -c -o $@ $<

$(example_programs): %: %.o $(example_parts:%.c=build/plain/%.o) \
		build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(call link,plain) -o $@ $^ $(LDLIBS)

# The linker's cache is the administrator's to refresh: ldconfig.
lib := $(DESTDIR)$(LIBDIR)
include := $(DESTDIR)$(INCLUDEDIR)
doc := $(DESTDIR)$(DOCDIR)
man := $(DESTDIR)$(MANDIR)
pages := $(wildcard man/*.[1-9])

install: $(libraries)
	$(Q)$(INSTALL) -d '$(lib)/pkgconfig' '$(include)' '$(doc)'
	$(Q)$(INSTALL) -m 644 hwt.h '$(include)'
	$(Q)$(INSTALL) -m 644 build/plain/libhwt.a '$(lib)'
	$(Q)$(INSTALL) -m 755 build/plain/$(so) '$(lib)'
	$(Q)ln -sf $(so) '$(lib)/$(soname)'
	$(Q)ln -sf $(soname) '$(lib)/libhwt.so'
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(version)|' packaging/hwt.pc.in \
		>'$(lib)/pkgconfig/hwt.pc'
	$(Q)chmod 644 '$(lib)/pkgconfig/hwt.pc'
	$(Q)$(INSTALL) -m 644 README LICENSE '$(doc)'
	$(Q)for page in $(pages); do \
		$(INSTALL) -D -m 644 $$page -t '$(man)/man'$${page##*.}; done
	@echo '  installed hwt $(version) in $(DESTDIR)$(PREFIX)'

uninstall:
	$(Q)rm -f '$(include)/hwt.h' '$(lib)/pkgconfig/hwt.pc' \
		'$(lib)/libhwt.a' '$(lib)/libhwt.so' '$(lib)/$(soname)' \
		'$(lib)/$(so)' '$(doc)/README' '$(doc)/LICENSE'
	$(Q)for page in $(pages:man/%=%); do \
		rm -f '$(man)/man'$${page##*.}/$$page; done
	$(Q)rmdir '$(doc)' 2>/dev/null || :

-include $(shell find build -path '*/sysroot' -prune -o -name '*.d' -print \
	2>/dev/null)
