# SPDX-License-Identifier: Apache-2.0
#
# hwt - a hashed wheel timer for network programs
#
#   make             builds libhwt.a and libhwt.so in build/plain
#   make install     into PREFIX, /usr/local unless told otherwise
#   make uninstall   takes that away again
#   make tsan        builds build/tsan/libhwt.a, to link with programs that are
#                    built with -fsanitize=thread
#   make demo        serves HTTP under load and shows what the timer did
#   make check       the tests for whoever changes a line; the last line counts
#   make check-all   all other tests; the last line counts them
#   make clean       removes build
#   make help        shows this
#
# Each of these alone, most of them longer than in check and check-all:
#
#   make tidy        checks the style of the sources
#   make explore     interleavings: EXPLORE='--seconds 60'; more options are at
#                    the top of test/explore/main.c
#   make soak        everything at once, for SOAK=600 seconds
#   make noise       suites and stress programs with atomic operations that come
#                    late, others each time, for NOISE=600 seconds
#   make fuzz        fuzzes for FUZZ=600 seconds
#   make faults      makes each call of the system fail
#   make valgrind    the stress programs under memcheck
#   make analyze     clang's analyzer, clang-tidy, cppcheck
#   make mutants     deliberate faults, each of which something must find; some
#                    of them: MUTANTS=pattern
#   make coverage    which lines and branches of the core the tests take
#   make perf        measures, beside what else there is: 13 minutes. Tables and
#                    plots go to build/perf; PERF='pair --rounds 7' and more:
#                    see the top of perf/run
#   make perf-full   the same with all cases: hours
#   make deps        installs what demo and check need (they do so themselves)
#
# Yours to set; what we need ourselves is added, never replaced:
#
#   CC CPPFLAGS CFLAGS LDFLAGS LDLIBS
#   PREFIX LIBDIR INCLUDEDIR DOCDIR MANDIR   where things are installed
#   DESTDIR          put in front of all of these
#   V=1              shows the commands
#   WERROR=1         a warning is an error, as it is in make check
#   STRESS=300       the stress programs' work, in percent
#   ARCH=aarch64     make check: cross-built, suites and stress programs under
#                    qemu-user (portability: it shows no weak memory)
#
# build has one folder per way of building, as test/rules.mk lists them.

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

Q := $(if $(filter-out 0,$(V)),,@)
say = $(if $Q,@echo '  $1 $@')

.SUFFIXES:
.SECONDARY:
.SECONDEXPANSION:
.DELETE_ON_ERROR:
.PHONY: all tsan demo help deps install uninstall clean force

core := $(wildcard *.c core/*.c executor/*.c)
version := $(shell sed -n 's/^.define HWT_VERSION_[MP][A-Z]* //p' hwt.h | \
	paste -s -d .)
soname := libhwt.so.$(firstword $(subst ., ,$(version)))
so := libhwt.so.$(version)

all: build/plain/libhwt.a build/plain/libhwt.so
tsan: build/tsan/libhwt.a

# The rules of these goals, and of files in build, are not read for others.
tested := check check-all tidy analyze explore mutants faults soak valgrind \
	noise fuzz coverage
measured := perf perf-full
.PHONY: $(tested) $(measured)

# What a goal needs is there before a compiler is asked anything. make -n
# installs nothing.
needy := $(filter deps demo $(tested) $(measured),$(MAKECMDGOALS))
ifneq ($(if $(findstring n,$(firstword -$(MAKEFLAGS))),,$(needy)),)
ifneq ($(shell CC='$(CC)' CXX='$(CXX)' CLANG='$(CLANG)' ARCH='$(ARCH)' \
	tools/deps $(needy) >&2 && echo there),there)
$(error what is needed is not there)
endif
# Alone, they use all cores, unless -j says otherwise.
ifeq ($(words $(MAKECMDGOALS))$(filter -j%,$(MAKEFLAGS)),1)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
endif

# build/WAY/FILE.o is FILE.c built in one way: with the compiler cc_WAY, and
# with flags_WAY, link_WAY and libs_WAY.
way = $(word 2,$(subst /, ,$@))
source = $(@:build/$(way)/%.o=%.c)
objects = $(1:%.c=build/$(way)/%.o)
cc = $(or $(cc_$(way)),$(CC))
flags_tsan := -fsanitize=thread
warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wvla -Wundef \
	-Wformat=2 -Wdouble-promotion -Walloca -Wold-style-definition \
	-Wmissing-declarations -Wredundant-decls -Wdate-time
compile = $(cc) -std=gnu11 -I. $(CPPFLAGS) -pthread -fvisibility=hidden \
	$(warnings) $(if $(filter-out 0,$(WERROR)),-Werror) $(flags_$(way)) \
	$(CFLAGS) $(last_$(way))
link = $(cc) -pthread $(flags_$(way)) $(CFLAGS) $(last_$(way)) \
	$(link_$(way)) $(LDFLAGS)
libs = $(libs_$(way)) @build/$(way)/libs $(LDLIBS)
# The library's objects fit into programs and into shared objects.
position = $(if $(filter $(core),$<),-fPIC -fno-semantic-interposition)

# Changes when the commands do, so that no object stays that others made.
build/%/flags: force
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(compile) $(link))' >$@.new
	@if cmp -s $@.new $@; then rm $@.new; \
		else tools/probe $(@D) $(compile) && mv $@.new $@; fi

build/%.o: $$(source) build/$$(way)/flags
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(compile) @build/$(way)/known $(position) $(own) \
		-MMD -MP -c -o $@ $<

# One object with its inner names made local: a program that links it may use
# the same names for its own.
build/%/libhwt.o: $$(call objects,$(core))
	$(call say,LD)
	$(Q)$(cc) $(CFLAGS) $(last_$(way)) @build/$(way)/merge -nostdlib -r \
		-o $@ $^
	$(Q)$(cross)$(OBJCOPY) --localize-hidden $@

build/%/libhwt.a: build/%/libhwt.o
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(cross)$(AR) rcs $@ $<

# Code stays mapped after dlclose: a worker may be running it.
build/%/$(so): $$(call objects,$(core)) packaging/hwt.map
	$(call say,LD)
	$(Q)$(link) -shared -Wl,-soname,$(soname) -Wl,-z,nodelete -Wl,-z,defs \
		-Wl,--version-script=packaging/hwt.map -o $@ \
		$(filter %.o,$^) $(libs)

build/%/libhwt.so: build/%/$(so)
	$(Q)ln -sf $(so) $(@D)/$(soname)
	$(Q)ln -sf $(soname) $@

# Of the examples, these are programs; the others are parts of each of them.
examples := $(patsubst %,build/plain/examples/%,demo httpd hostile)
example_parts := $(filter-out $(examples:%=%.o), \
	$(patsubst %.c,build/plain/%.o,$(wildcard examples/*.c)))
$(examples): %: %.o $(example_parts) build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs)

demo: $(examples)
	@build/plain/examples/demo

help:
	@awk 'NR > 2 { if (!/^#/) exit; sub(/^# ?/, ""); print }' Makefile

deps: # done, as this file was read
clean:
	rm -rf build

# The linker's cache is the administrator's to refresh: ldconfig.
lib := $(DESTDIR)$(LIBDIR)
include := $(DESTDIR)$(INCLUDEDIR)
doc := $(DESTDIR)$(DOCDIR)
man := $(DESTDIR)$(MANDIR)
pages := $(wildcard man/*.[1-9])

install: all
	$(Q)$(INSTALL) -d '$(lib)/pkgconfig' '$(include)' '$(doc)'
	$(Q)$(INSTALL) -m 644 hwt.h '$(include)'
	$(Q)$(INSTALL) -m 644 build/plain/libhwt.a '$(lib)'
	$(Q)$(INSTALL) -m 755 build/plain/$(so) '$(lib)'
	$(Q)ln -sf $(so) '$(lib)/$(soname)'
	$(Q)ln -sf $(soname) '$(lib)/libhwt.so'
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
		-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(version)|' \
		-e "s|@LIBS@|$$(cat build/plain/libs)|" packaging/hwt.pc.in \
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

ifneq ($(filter build/% $(tested) $(measured),$(MAKECMDGOALS)),)
include perf/rules.mk
endif
ifneq ($(filter build/% $(tested),$(MAKECMDGOALS)),)
include test/rules.mk
endif
-include $(shell find build -maxdepth 4 -name '*.d' -type f 2>/dev/null)
