# SPDX-License-Identifier: Apache-2.0
#
# hwt - a hashed wheel timer for network programs
#
#   make             builds libhwt.a and libhwt.so in build/plain
#   make purgatory checkout durable
#                    builds these modules: modules/NAME/README
#   make install     into PREFIX, with the modules that can be built; MODULES=
#                    leaves them out. install-durable is a module alone
#   make uninstall uninstall-durable
#                    take away what these have installed
#   make single      the whole library as build/single/hwt.h and hwt.c
#   make deb         Debian's packages, in build/deb, of the library and of the
#                    modules; MAINTAINER='Name <address>' HOMEPAGE=https://...
#   make release     what a release consists of, twice and the same, in
#                    build/release: KEY=... signs it, DRAFT=1 before its time
#   make demo        serves HTTP under load and shows what the timer did, live
#                    in a browser at /_timer; DEMO=60 seconds leave time for it
#   make demo-longpoll demo-pool demo-durable
#                    of modules/purgatory, checkout and durable (DEMO='--seconds
#                    20 --rate 2000')
#   make demo-memcached demo-lighttpd demo-openldap
#                    these programs, fetched, without hwt and with
#   make wheel       the wheel turns in the terminal: see examples/wheel.c
#   make check       the tests for whoever changes a line; the last line counts
#   make check-all   all other tests; the last line counts
#   make check-musl  the suites, stress programs and demo with musl, a C library
#   make check-systems
#                    compiles hwt, purgatory and checkout for macOS, FreeBSD and
#                    OpenBSD
#   make check-smp   the stress programs on an aarch64 machine of 4 processors,
#                    which qemu-system emulates
#   make deps        installs what demo and check need: these do so themselves,
#                    with apt, and name it first. Other goals install no
#                    packages, but say which they miss
#   make clean help  removes build; shows this
#
# Single tests, most of them longer than in check and check-all:
#
#   make tidy        the style of the sources
#   make analyze     clang's analyzer, clang-tidy, cppcheck
#   make compile_commands.json
#                    for clangd
#   make explore     interleavings: EXPLORE='--seconds 60'; test/explore/main.c
#   make faults      each call of the system fails
#   make fuzz        for FUZZ=600 seconds
#   make soak        the model and the stress programs again and again, each
#                    time with another seed, for SOAK=600 seconds
#   make soak-durable
#                    everything at once, for SOAK=600 seconds, and then
#                    connections that break after every EVERY=1 bytes
#   make durable-seeds
#                    each random run of modules/durable with SEEDS=10 seeds
#   make durable-cut
#                    the file of Redis is cut at each of its last 4,096 bytes;
#                    CUT='--sample 64': at so many
#   make perf-store  a store of 10 million objects beside one mutex, in modules/
#                    checkout: STORE='objects=1000000 seconds=3'
#   make wheel-svg   draws docs/wheel.svg
#   make transfers   cache lines that move between cores, on 2 to 64 simulated
#                    ones; TRANSFERS=--lines names them
#   make noise       atomic operations come late, for NOISE=600 seconds
#   make valgrind    the stress programs under memcheck
#   make mutants     deliberate faults, each of which a test must find, also in
#                    durable's scripts; MUTANTS='hwt.c|suite touch|take.lua':
#                    those that match
#   make coverage    which lines and branches of the core the tests take
#   make bare        README's commands on a Debian that has gcc and make alone
#   make abi         programs built against the last release still run
#   make perf        16 minutes of benchmarks: PERF='pair --rounds 7'; perf/run
#   make perf-full   hours of them
#   make perf-durable  delayed tasks beside BullMQ, Celery, Graphile Worker and
#                    others, in 15 minutes: PERF='--rounds 1 --only hwt';
#                    installs packages of npm, below build
#   make billion     a billion delayed tasks a day, for HOURS=1 or MINUTES=2,
#                    with kills, and the account: modules/durable/perf
#
# Yours to set; what is needed besides is added, never replaced:
#
#   CC CPPFLAGS CFLAGS LDFLAGS LDLIBS
#   PREFIX=/usr/local, from /; DESTDIR before it and before these, if given:
#   LIBDIR=PREFIX/lib INCLUDEDIR=PREFIX/include BINDIR=PREFIX/bin
#   DOCDIR=PREFIX/share/doc/hwt MANDIR=PREFIX/share/man
#   UNITDIR=PREFIX/lib/systemd/system
#   PYTHONDIR        for hwt.py: where python3 looks in PREFIX, or else
#                    PREFIX/lib/python3/dist-packages
#   V=1              shows the commands
#   WERROR=1         a warning is an error, as it is in make check
#   STRESS=300       the stress programs' work, in percent
#   ONLY='header/*'  make check, check-all: the jobs whose names match
#   ARCH=aarch64     make check: cross-built, under qemu-user; also s390x and
#                    riscv64

CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
CLANG ?= clang
OBJCOPY ?= objcopy
CFLAGS ?= -O2 -g

.SUFFIXES .SECONDARY .SECONDEXPANSION .DELETE_ON_ERROR:
.PHONY: all demo wheel wheel-svg help deps clean force

# Not *.c: a visitor may have saved README's example.c here.
core := hwt.c mpsc_queue.c worker.c \
	$(wildcard core/*.c executor/*.c observe/*.c)
version := $(shell sed -n 's/^.define HWT_VERSION_[MP][A-Z]* //p' hwt.h | \
	paste -s -d .)
major := $(firstword $(subst ., ,$(version)))
soname := libhwt.so.$(major)
so := libhwt.so.$(version)

all: build/plain/libhwt.a build/plain/libhwt.so

MODULES ?= $(patsubst modules/%/rules.mk,%,$(wildcard modules/*/rules.mk))
installed := install uninstall $(MODULES:%=install-%) \
	$(MODULES:%=uninstall-%)
packed := single deb abi release
moduled := $(MODULES) $(MODULES:%=install-%)
tested := check check-all check-musl check-systems check-smp tidy analyze \
	explore mutants faults soak valgrind noise fuzz coverage bare transfers
measured := perf perf-full
.PHONY: $(installed) $(packed) $(moduled) $(tested) $(measured)

include tools/compile.mk tools/module.mk

build/%/libhwt.o: $$(call objects,$(core))
	$(merge_objects)
build/%/$(so): $$(call objects,$(core)) packaging/hwt.map
	$(link_shared)

help:
	@awk 'NR > 2 { if (!/^#/) exit; sub(/^# ?/, ""); print }' Makefile

deps: # done by tools/compile.mk
	@:

clean:
	rm -rf build

# What other goals need stands beside it.
ifneq ($(filter-out all help deps clean,$(MAKECMDGOALS)),)
include $(patsubst %,%/rules.mk,$(MODULES:%=modules/%) packaging \
	examples perf test)
endif
# What gcc has written, and none of the files of another project or a Debian.
-include $(shell find build -maxdepth 6 \( -path build/memcached -o \
	-path build/lighttpd -o -path build/openldap -o \
	-path 'build/check*' \) -prune \
	-o -name '*.d' -type f -print 2>/dev/null)
