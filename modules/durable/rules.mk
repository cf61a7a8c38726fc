# SPDX-License-Identifier: Apache-2.0
#
# libhwt_durable, a module on top of libhwt, and its programs; read by Makefile.
# It needs hiredis; its programs jansson, libmicrohttpd, libcurl and OpenSSL
# (hwt-http); the tests a redis-server.

durable_header := hiredis/hiredis.h microhttpd.h curl/curl.h jansson.h \
	openssl/hmac.h
durable_package := libhiredis-dev libmicrohttpd-dev libcurl4-openssl-dev \
	libjansson-dev libssl-dev
durable_libs := -lhiredis
durable_talk := hwtd hwtctl hwt-exec hwt-http
durable_bin := $(durable_talk) hwt-aof-repair
$(eval $(call module,durable))
durable_doc += modules/durable/systemd/redis-server.conf \
	modules/durable/grafana.json modules/durable/openapi.json
durable_programs := $(durable_bin:%=build/plain/%)
# The explorer has no model of a server.
explored_alone += $(durable)

# The scripts, as they are sent, with the common part put into each.
durable_scripts := $(filter-out modules/durable/scripts/common.lua, \
	$(sort $(wildcard modules/durable/scripts/*.lua)))
build/durable/scripts.h: modules/durable/embed $(durable_scripts) \
		modules/durable/scripts/common.lua
	$(call say,EMBED)
	@mkdir -p $(@D)
	$(Q)modules/durable/embed modules/durable/scripts >$@
durable_embeds := $(foreach w,plain clang asan tsan fuzz cov lto musl \
	aarch64, \
	build/$w/modules/durable/call.o)
$(durable_embeds): build/durable/scripts.h
$(durable_embeds): own = -Ibuild/durable

# The programs look closer than the library lets others do: they are linked with
# its objects.
durable_own_hwtctl := modules/durable/programs/task-json.c \
	$(wildcard modules/durable/programs/hwtctl-*.c)
durable_own_libs_hwtctl := -ljansson
durable_own_hwtd := $(addprefix modules/durable/programs/, http.c task-json.c) \
	$(wildcard modules/durable/programs/hwtd-*.c)
$(patsubst %,build/%/modules/durable/programs/hwtd-page.o, \
	plain clang asan tsan): $(wildcard modules/durable/programs/page/*)
durable_metrics := $(addprefix modules/durable/programs/, http.c \
	worker-serve.c)
durable_own_hwt-exec := $(durable_metrics)
durable_own_libs_hwt-exec := -lmicrohttpd
durable_own_libs_hwtd := -lmicrohttpd -ljansson
durable_own_hwt-http := $(wildcard modules/durable/programs/hwt-http-*.c) \
	$(durable_metrics)
durable_own_libs_hwt-http := -lcurl -ljansson -lcrypto -lmicrohttpd
durable_shared := $(filter-out \
	$(durable_bin:%=modules/durable/programs/%.c) $(durable_own_hwtd) \
	$(durable_own_hwtctl) $(durable_own_hwt-http) \
	$(durable_own_hwt-exec), \
	$(wildcard modules/durable/programs/*.c))
durable_linked := $(foreach w,plain clang asan tsan, \
	$(durable_talk:%=build/$w/%))
$(durable_linked): build/%: $$(call objects, $(durable_shared) $(durable) \
		modules/durable/programs/$$(@F).c $$(durable_own_$$(@F))) \
		build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(durable_libs) \
		$(durable_own_libs_$(@F)) $(libs)

# For a machine that has Redis, and nothing else of this.
durable_repair := modules/durable/programs/hwt-aof-repair
$(foreach w,plain clang asan,build/$w/$(durable_repair).o): \
	own = -DHWT_VERSION='"$(version)"'
$(foreach w,plain clang asan,build/$w/hwt-aof-repair): build/%/hwt-aof-repair: \
		build/%/$(durable_repair).o
	$(call say,LD)
	$(Q)$(link) -o $@ $< $(libs)

# The third edition: the machine, and its two hosts.
durable_machine := $(wildcard modules/durable/machine/*.c)
durable_redis := $(wildcard modules/durable/redis/*.c)
durable_server := $(wildcard modules/durable/server/*.c)
$(foreach w,plain asan,$(patsubst %.c,build/$w/%.o,$(durable_machine) \
	$(durable_redis))): own = -fPIC
build/%/hwt.so: $$(call objects,$(durable_machine) $(durable_redis))
	$(call say,LD)
	$(Q)$(link) -shared -o $@ $^
build/%/durable/hwtd: $$(call objects,$(durable_machine) $(durable_server)) \
		build/%/libhwt.a
	$(call say,LD)
	@mkdir -p $(@D)
	$(Q)$(link) -o $@ $^ -lsqlite3 $(libs)
build/%/modules/durable/test/machine_model: $$(call objects, \
		$(durable_machine) modules/durable/test/machine_model.c)
	$(call say,LD)
	$(Q)$(link) -o $@ $^

build/fuzz/durable-machine: $$(call objects,$(durable_machine) \
		modules/durable/test/machine_fuzz.c)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs)

# The tests.
durable_test := modules/durable/test
durable_spec := $(wildcard $(durable_test)/spec/*.c)
durable_support := test/spec/support.c
durable_tested := $(addprefix modules/durable/programs/, \
	hwt-http-address.c hwt-http-request.c options.c text.c)
durable_tested_libs := -lcurl -ljansson -lcrypto
durable_wrapped := $(sort $(shell sed -n \
	-e 's/^__wrap_\([a-z0-9_]*\).*/\1/p' \
	-e 's/^WRAP.[a-z *]*, \([a-z_]*\),.*/\1/p' $(durable_support)))
build/%/durable-test: $$(call objects,$(durable_spec) $(durable) \
		$(durable_tested) $(durable_support)) $$(objects_$$*) \
		build/%/libhwt.a
	$(call say,LD)
	$(Q)$(link) $(durable_wrapped:%=-Wl,--wrap=%) -o $@ $^ -lcriterion \
		$(durable_tested_libs) $(durable_libs) $(libs)

durable_stress := $(wildcard $(durable_test)/stress/*.c)
durable_stressed := $(foreach w,plain asan tsan, \
	$(durable_stress:%.c=build/$w/%))
$(durable_stressed): %: %.o \
		$$(call objects,$(durable) $(durable_test)/spec/server.c) \
		$$(objects_$$(way)) build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(durable_libs) \
		$(libs)

durable_fuzz := $(durable_test)/fuzz/route.c
build/fuzz/durable-route: $$(call objects,$(durable_fuzz) \
		modules/durable/route.c modules/durable/task.c)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)
build/asan/durable-route: $$(call objects,$(durable_fuzz) \
		modules/durable/test/fuzz/replay.c modules/durable/route.c \
		modules/durable/task.c)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)

# What the tests in Python run.
.PHONY: durable-tests durable-tests-asan
durable-tests: build/plain/libhwt_durable.so build/plain/libhwt_durable.a \
		$(durable_programs)
durable-tests-asan: durable-tests $(durable_bin:%=build/asan/%)

-include modules/durable/programs/rules.mk modules/durable/test/rules.mk \
	modules/durable/perf/rules.mk
