# SPDX-License-Identifier: Apache-2.0
#
# What make perf and perf-full build and run; read by Makefile.
#
# perf/LOAD.c is built once for each SUBJECT, a header that says which timers
# are compared, or a variant of one: build/plain/perf/LOAD/SUBJECT. A folder of
# perf that has a main.c is a program for each of its other files.

loads := $(patsubst perf/%.c,%,$(wildcard perf/*.c))
# Of a load that needs a package of its own: its header, and its library.
header_deadline := hiredis/hiredis.h
libs_of_load_deadline := -lhiredis
needing := deadline
mains := $(wildcard perf/*/main.c)
schemes := $(basename $(filter-out $(mains),$(wildcard $(mains:main.c=*.c))))

# Subjects that are the header of another one with these definitions. The tops
# of the headers say what for.
variant_hwt_at := hwt -DSUBJECT_DEADLINES=1
variant_hwt_relaxed := hwt -DSUBJECT_HWT_FLAGS=HWT_RELAXED
variant_libev_mt := libev -DLOOP_MT=1
variant_libuv_mt := libuv -DLOOP_MT=1
variant_libevent_mt := libevent -DLIBEVENT_MT=1
variant_libevent_common := libevent -DLIBEVENT_COMMON=1
variant_libevent_common_mt := libevent -DLIBEVENT_MT=1 -DLIBEVENT_COMMON=1
variant_mutex_wheel_adaptive := mutex_wheel \
	-DMUTEX_WHEEL_LOCK=MUTEX_WHEEL_ADAPTIVE
variant_mutex_wheel_at := mutex_wheel -DSUBJECT_DEADLINES=1
variant_mutex_wheel_embedded := mutex_wheel -DMUTEX_WHEEL_EMBEDDED=1
variant_mutex_wheel_lazy := mutex_wheel -DSUBJECT_DEADLINES=1 \
	-DMUTEX_WHEEL_LAZY=1
variant_mutex_wheel_sharded := mutex_wheel -DSUBJECT_DEADLINES=1 \
	-DMUTEX_WHEEL_EMBEDDED=1 -DMUTEX_WHEEL_SHARDS=64
variant_mutex_wheel_spin := mutex_wheel -DMUTEX_WHEEL_LOCK=MUTEX_WHEEL_SPIN
variant_wheel := mutex_wheel -DSUBJECT_DEADLINES=1 -DMUTEX_WHEEL_EMBEDDED=1 \
	-DMUTEX_WHEEL_LOCK=MUTEX_WHEEL_NONE
subjects := $(sort $(patsubst perf/subject/%.h,%,$(wildcard perf/subject/*.h)) \
	$(patsubst variant_%,%,$(filter variant_%,$(.VARIABLES))))
subject = $(notdir $(basename $@))
subject_header = perf/subject/$(firstword $(variant_$(subject)) $(subject)).h
variant = $(wordlist 2,9,$(variant_$(subject)))
own_subjects := $(filter hwt hwt_at hwt_relaxed mutex_wheel,$(subjects))

# What is measured here needs no peer. The floor is one of touch alone.
of_loads = $(foreach load,$(loads),$(1:%=perf/$(load)/%))
needing_own := $(foreach load,$(needing),$(own_subjects:%=perf/$(load)/%))
perf_names := $(schemes) \
	$(filter-out $(needing_own),$(call of_loads,$(own_subjects))) \
	$(patsubst %,perf/touch/%,$(filter floor,$(subjects)))
perf_programs := $(perf_names:%=build/plain/%) $(module_perf)

# Of a peer, which is the first word of its subjects' names: a header that must
# be there, and what it is compiled and linked with.
peer = $(call peer_of,$(subject))
peer_of = $(firstword $(subst _, ,$1))

header_libevent := event2/event.h
libs_of_libevent := -levent_core -levent_pthreads
header_libev := ev.h
libs_of_libev := -lev
header_libuv := uv.h
libs_of_libuv := -luv
header_glib := glib.h
flags_of_glib = $(subst -I,-isystem ,$(shell pkg-config --cflags glib-2.0))
libs_of_glib = $(shell pkg-config --libs glib-2.0)
header_nng := nng/nng.h
libs_of_nng := -lnng
header_asio := boost/asio/version.hpp
libs_of_asio := -lstdc++
objects_of_asio := build/plain/perf/subject/asio.o
libs_of_tokio := -lgcc_s -ldl
objects_of_tokio := build/plain/perf/peer/tokio/libpeer_tokio.a
crates := $(or $(CARGO_REGISTRY),/usr/share/cargo/registry)
tokio := $(notdir $(firstword $(wildcard $(crates)/tokio-1.*)))

# Benchmarks print what they were built with.
said = $(subst ",,$(subst ',,$(strip $(CPPFLAGS) $(CFLAGS))))
$(foreach w,plain clang $(emulated),build/$w/perf/%.o): \
	own = -DHWT_CFLAGS='"$(strip $(cc) $(said) $(variant))"'

load_source = $(patsubst build/$(way)/%/,%.c,$(dir $@))
load_programs := $(addprefix build/plain/,$(call of_loads,$(subjects)))
load_objects := $(foreach w,plain clang $(emulated), \
	$(load_programs:build/plain/%=build/$w/%.o))

$(load_objects): $$(load_source) build/$$(way)/flags perf/rules.mk
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(compile) @build/$(way)/known $(own) $(flags_of_$(peer)) \
		-DSUBJECT='"$(subject_header)"' \
		-DSUBJECT_NAME='"$(subject)"' $(variant) \
		-MMD -MP -c -o $@ $<

$(load_programs): %: %.o $$(objects_of_$$(peer)) build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs_of_$(peer)) \
		$(libs_of_load_$(notdir $(@D))) -lm $(libs)

$(schemes:%=build/plain/%): %: %.o $$(@D)/main.o build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ -lm $(libs)

build/plain/perf/subject/%.o: perf/subject/%.cc build/plain/flags
	$(call say,CXX)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -I. $(CPPFLAGS) -pthread -Wall -Wextra \
		$(if $(filter-out 0,$(WERROR)),-Werror) $(CFLAGS) \
		-MMD -MP -c -o $@ $<

# The crates are Debian's; nothing comes from the network. Cargo writes beside
# its manifest, and so works on a copy.
build/plain/perf/peer/tokio/libpeer_tokio.a: $(wildcard perf/peer/tokio/*)
	$(call say,CARGO)
	@mkdir -p $(@D)
	$(Q)cp $^ $(@D)
	$(Q)cd $(@D) && PEER_VERSION=$(tokio:tokio-%=%) \
		PEER_COMPILER="$$(rustc --version)" \
		cargo build --quiet --release --offline --target-dir target \
		--config 'source.crates-io.replace-with="debian"' \
		--config 'source.debian.directory="$(crates)"'
	$(Q)cp $(@D)/target/release/$(@F) $@

# So that other libraries are still found and linked; these two need no package
# that the tests do not.
check-all: $(addprefix build/plain/perf/pair/,libuv libevent) \
	$(needing_own:%=build/plain/%)

# What is to be measured says what is built for it, as far as it can be. What
# has a build in perf/peer is built by that.
ifneq ($(filter $(measured),$(MAKECMDGOALS)),)
full := $(if $(filter perf-full,$(MAKECMDGOALS)),--full)
# For the peers' own programs.
export CC CPPFLAGS CFLAGS LDFLAGS LDLIBS
wanted := $(shell perf/run --list $(full) $(PERF))
there = $(if $(header_$1),$(shell echo '$(hash)include <$(header_$1)>' | \
	$(CXX) $(flags_of_$1) -E -x c++ - >/dev/null 2>&1 && echo yes),yes)
peers := $(sort $(foreach subject,$(subjects),$(call peer_of,$(subject))))
peers := $(foreach name,$(peers),$(if $(call there,$(name)),$(name)))
peers := $(filter-out \
	$(if $(and $(tokio),$(shell command -v cargo)),,tokio),$(peers))
usable := $(foreach subject,$(subjects), \
	$(if $(filter $(peers),$(call peer_of,$(subject))),$(subject)))
loads := $(foreach load,$(loads),$(if $(call there,$(load)),$(load)))

$(measured): $(filter $(wanted),$(perf_programs) \
		$(addprefix build/plain/,$(call of_loads,$(usable))))
	@for build in $(sort $(foreach name,$(notdir $(wanted)), \
		$(wildcard perf/peer/$(name)/build))); do \
		nice $$build build/plain || :; done
	@perf/run $(full) $(PERF)
endif
