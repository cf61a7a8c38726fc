# SPDX-License-Identifier: Apache-2.0
#
# hwt - a hashed wheel timer for network programs
#
#   make             builds libhwt.a and libhwt.so in build/plain
#   make purgatory, checkout or durable
#                    builds this module: modules/NAME/README
#   make install     into PREFIX, with each module that can be built
#   make uninstall   removes what install has put there
#   make single      the whole library as build/single/hwt.h and hwt.c
#   make deb         Debian's packages, in build/deb:
#                    MAINTAINER='Name <address>' HOMEPAGE=https://...
#   make release     tarballs, packages and checksums, made twice and compared,
#                    in build/release: KEY=... signs them; DRAFT=1 tries it
#   make demo        serves HTTP under load and shows the timer, live in a
#                    browser at /_timer; DEMO=60 seconds
#   make demo-longpoll, demo-pool or demo-durable
#                    the same for the modules
#   make demo-memcached
#                    memcached, fetched, without hwt and with it
#   make wheel       a wheel turns in the terminal: examples/wheel.c
#   make check       the tests for each change; the last line counts
#   make check-all   all other tests; the last line counts
#   make tidy        the rules of style
#   make explore     interleavings: EXPLORE='--generate 10000'
#   make fuzz        libFuzzer chooses for the model, for FUZZ=600 seconds
#   make mutants     deliberate faults, each of which a test must find;
#                    MUTANTS='hwt.c|suite touch': those that match
#   make coverage    lines and branches that the tests take
#   make perf        the benchmarks: PERF='pair --rounds 7'
#   make clean       removes build
#   make help        shows this
#
# demo, check and check-all install the Debian packages that they need, by
# tools/deps; other goals name them.
#
# Yours to set; the Makefile adds to these and replaces none:
#
#   CC CPPFLAGS CFLAGS LDFLAGS LDLIBS
#   PREFIX=/usr/local, from /; DESTDIR before it and before these, if given:
#   LIBDIR=PREFIX/lib INCLUDEDIR=PREFIX/include BINDIR=PREFIX/bin
#   DOCDIR=PREFIX/share/doc/hwt MANDIR=PREFIX/share/man
#   PYTHONDIR=PREFIX/lib/python3/dist-packages, for hwt.py
#   MODULES='purgatory checkout durable', to install; MODULES= none
#   V=1              shows the commands
#   WERROR=1         a warning is an error, as it is in make check
#   STRESS=300       the work of the stress programs, in percent
#   ONLY='header/*'  make check, check-all: the jobs whose names match
#   ARCH=aarch64     make check: cross-built, under qemu-user

CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
CLANG ?= clang
OBJCOPY ?= objcopy
CFLAGS ?= -O2 -g

.SUFFIXES .SECONDARY .SECONDEXPANSION .DELETE_ON_ERROR:
.PHONY: all demo wheel help clean force

# Not *.c: a visitor may have saved README's example.c here.
core := hwt.c mpsc_queue.c worker.c \
	$(wildcard sys/*.c core/*.c executor/*.c observe/*.c)
version := $(shell sed -n 's/^.define HWT_VERSION_[MP][A-Z]* //p' hwt.h | \
	paste -s -d .)
major := $(firstword $(subst ., ,$(version)))
soname := libhwt.so.$(major)
so := libhwt.so.$(version)

all: build/plain/libhwt.a build/plain/libhwt.so

MODULES ?= $(patsubst modules/%/rules.mk,%,$(wildcard modules/*/rules.mk))
packed := single deb release
moduled := $(MODULES)
tested := check check-all check-aarch64 tidy explore mutants fuzz coverage
.PHONY: install uninstall $(packed) $(moduled) $(tested) perf perf-full
installed := install uninstall
measured := perf perf-full

include tools/compile.mk tools/module.mk

build/%/libhwt.o: $$(call objects,$(core))
	$(merge_objects)
build/%/$(so): $$(call objects,$(core)) packaging/hwt.map
	$(link_shared)

help:
	@awk 'NR > 2 { if (!/^#/) exit; sub(/^# ?/, ""); print }' Makefile

clean:
	rm -rf build

# The needs of other goals stand beside them.
ifneq ($(filter-out all help clean,$(MAKECMDGOALS)),)
include $(patsubst %,%/rules.mk,$(MODULES:%=modules/%) packaging \
	examples perf test)
endif
# Files that gcc has written, and none of another project.
-include $(shell find build -maxdepth 6 \( -path build/memcached -o \
	-path 'build/check*' -o -path build/mutants \) -prune \
	-o -name '*.d' -type f -print 2>/dev/null)
