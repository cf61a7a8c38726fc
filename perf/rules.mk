# SPDX-License-Identifier: Apache-2.0
#
# The benchmarks of make perf and perf-full; read by Makefile.
#
# perf/driver.c is built once for each SUBJECT, a header of perf/subject or a
# variant of one: build/plain/perf/SUBJECT. perf/schemes.c is a program alone.

variant_hwt_at := hwt -DSUBJECT_DEADLINES=1
variant_mutex_wheel_at := mutex_wheel -DSUBJECT_DEADLINES=1
variant_mutex_wheel_lazy := mutex_wheel -DSUBJECT_DEADLINES=1 \
	-DMUTEX_WHEEL_LAZY=1
variant_mutex_wheel_sharded := mutex_wheel -DSUBJECT_DEADLINES=1 \
	-DMUTEX_WHEEL_SHARDS=64
subjects := $(sort $(patsubst perf/subject/%.h,%,$(wildcard perf/subject/*.h)) \
	$(patsubst variant_%,%,$(filter variant_%,$(.VARIABLES))))
subject = $(notdir $(basename $@))
subject_header = perf/subject/$(firstword $(variant_$(subject)) $(subject)).h
variant = $(wordlist 2,9,$(variant_$(subject)))

# Cases that need no other library.
perf_names := perf/schemes \
	$(patsubst %,perf/%,$(filter hwt% mutex_wheel%,$(subjects)))
perf_programs := $(perf_names:%=build/plain/%) $(module_perf)

# Of another library, the first word of a subject's name: the header that must
# be there, and what it is linked with.
peer_of = $(firstword $(subst _, ,$1))
header_libevent := event2/event.h
libs_of_libevent := -levent_core
header_libuv := uv.h
libs_of_libuv := -luv
libs_of_tokio := -lgcc_s -ldl
objects_of_tokio := build/plain/perf/tokio.a
has_header = $(shell echo '$(hash)include <$1>' | \
	$(CC) -E -x c - >/dev/null 2>&1 && echo yes)

# The client of Redis.
hiredis := $(call has_header,hiredis/hiredis.h)
libs_of_driver := $(if $(hiredis),-lhiredis)
flags_of_driver = $(if $(filter plain clang,$(way)),$(if \
	$(hiredis),-DPERF_DEADLINE))

# Benchmarks print what they were built with.
said = $(subst ",,$(subst ',,$(strip $(CPPFLAGS) $(CFLAGS))))
$(foreach w,plain clang $(emulated),build/$w/perf/%.o): \
	own = -DHWT_CFLAGS='"$(strip $(cc) $(said) $(variant))"'

drivers := $(subjects:%=build/plain/perf/%)
$(foreach w,plain clang $(emulated),$(drivers:build/plain/%=build/$w/%.o)): \
		perf/driver.c build/$$(way)/flags perf/rules.mk
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(compile) @build/$(way)/known $(own) $(flags_of_driver) \
		-DSUBJECT='"$(subject_header)"' \
		-DSUBJECT_NAME='"$(subject)"' $(variant) \
		-MMD -MP -c -o $@ $<

$(drivers): %: %.o $$(objects_of_$$(call peer_of,$$(subject))) \
		build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs_of_$(call peer_of,$(subject))) \
		$(libs_of_driver) $(libs)

build/plain/perf/schemes: build/plain/perf/schemes.o build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ -lm $(libs)

# The crates are Debian's; nothing comes from the network. Cargo writes beside
# its manifest, and so works on a copy.
crates := $(or $(CARGO_REGISTRY),/usr/share/cargo/registry)
tokio := $(notdir $(firstword $(wildcard $(crates)/tokio-1.*)))
build/plain/perf/tokio.a: $(wildcard perf/peer/tokio/*)
	$(call say,CARGO)
	@mkdir -p build/plain/perf/cargo
	$(Q)cp $^ build/plain/perf/cargo
	$(Q)cd build/plain/perf/cargo && PEER_VERSION=$(tokio:tokio-%=%) \
		PEER_COMPILER="$$(rustc --version)" \
		cargo build --quiet --release --offline --target-dir target \
		--config 'source.crates-io.replace-with="debian"' \
		--config 'source.debian.directory="$(crates)"'
	$(Q)cp build/plain/perf/cargo/target/release/libpeer_tokio.a $@

# Subjects whose libraries are missing are not built.
ifneq ($(filter $(measured),$(MAKECMDGOALS)),)
full := $(if $(filter perf-full,$(MAKECMDGOALS)),--full)
wanted := $(shell perf/run --list $(full) $(PERF))
peers := $(foreach peer,libevent libuv,$(if \
	$(call has_header,$(header_$(peer))),$(peer)))
peers += $(if $(and $(tokio),$(shell command -v cargo)),tokio)
usable := $(foreach subject,$(subjects),$(if $(filter hwt mutex timerfd \
	$(peers),$(call peer_of,$(subject))),build/plain/perf/$(subject)))

$(measured): $(filter $(wanted),$(perf_programs) $(usable))
	@$(if $(filter %/netty,$(wanted)),nice perf/peer/netty/build || :)
	@perf/run $(full) $(PERF)
endif
