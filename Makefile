# SPDX-License-Identifier: Apache-2.0
#
# hwt - a hashed wheel timer for network programs
#
#   make             builds libhwt.a and libhwt.so in build/plain
#   make install     into PREFIX; make uninstall takes that away again
#   make tsan        build/tsan/libhwt.a, for programs that are built with
#                    -fsanitize=thread
#   make demo        serves HTTP under load and shows what the timer did
#   make check       the tests for whoever changes a line; the last line counts
#   make check-all   all other tests; the last line counts
#   make deps        installs what demo and check need (they do so themselves)
#   make clean       removes build
#   make help        shows this
#
# Single tests, most of them longer than in check and check-all:
#
#   make tidy        the style of the sources
#   make analyze     clang's analyzer, clang-tidy, cppcheck
#   make explore     interleavings: EXPLORE='--seconds 60', and what the top of
#                    test/explore/main.c says
#   make faults      each call of the system fails
#   make fuzz        for FUZZ=600 seconds
#   make soak        everything at once, for SOAK=600 seconds
#   make noise       atomic operations come late, for NOISE=600 seconds
#   make valgrind    the stress programs under memcheck
#   make mutants     deliberate faults, which are found: those of the list and
#                    40 generated ones; MUTANTS=200, all, or a pattern; SEED=N
#   make coverage    which lines and branches of the core the tests take
#   make perf        13 minutes of benchmarks: PERF='pair --rounds 7', and what
#                    the top of perf/run says; make perf-full takes hours
#
# Yours to set; what is needed besides is added, never replaced:
#
#   CC CPPFLAGS CFLAGS LDFLAGS LDLIBS
#   PREFIX=/usr/local LIBDIR INCLUDEDIR DOCDIR MANDIR, and DESTDIR before them
#   V=1              shows the commands
#   WERROR=1         a warning is an error, as it is in make check
#   STRESS=300       the stress programs' work, in percent
#   ARCH=aarch64     make check: cross-built, under qemu-user (portability: it
#                    shows no weak memory)

CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
CLANG ?= clang
OBJCOPY ?= objcopy
INSTALL ?= install
CFLAGS ?= -O2 -g
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR ?= $(PREFIX)/share/doc/hwt
MANDIR ?= $(PREFIX)/share/man

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

tested := check check-all tidy analyze explore mutants faults soak valgrind \
	noise fuzz coverage
measured := perf perf-full
.PHONY: $(tested) $(measured)

include tools/compile.mk

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

help:
	@awk 'NR > 2 { if (!/^#/) exit; sub(/^# ?/, ""); print }' Makefile

deps: # done by tools/compile.mk
	@:

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
	$(Q)rm -f '$(include)/hwt.h' '$(doc)/README' '$(doc)/LICENSE' \
		$(patsubst %,'$(lib)/%',pkgconfig/hwt.pc libhwt.a libhwt.so \
		$(soname) $(so))
	$(Q)for page in $(pages:man/%=%); do \
		rm -f '$(man)/man'$${page##*.}/$$page; done
	$(Q)rmdir '$(doc)' 2>/dev/null || :

# What other goals need stands beside it, and is read for them alone.
parts := $(if $(filter build/% $(tested),$(MAKECMDGOALS)),examples perf test) \
	$(if $(filter $(measured),$(MAKECMDGOALS)),perf) \
	$(if $(filter demo,$(MAKECMDGOALS)),examples)
include $(patsubst %,%/rules.mk,$(sort $(parts)))
-include $(shell find build -maxdepth 4 -name '*.d' -type f 2>/dev/null)
