# SPDX-License-Identifier: Apache-2.0
#
# libhwt_durable, a module on top of libhwt, its programs, and hwt.so, which
# Redis loads; read by Makefile. The library needs hiredis and SQLite; hwtd
# libmicrohttpd, hwt-http libcurl and OpenSSL; the tests a redis-server.

durable_folder := modules/durable
durable_header := hiredis/hiredis.h sqlite3.h microhttpd.h curl/curl.h \
	openssl/hmac.h
durable_package := libhiredis-dev libsqlite3-dev libmicrohttpd-dev \
	libcurl4-openssl-dev libssl-dev
durable_libs := -lhiredis -lsqlite3

# The state machine; the store and the server of it, which the library has for
# "file:DIR"; the client.
durable_machine := $(wildcard $(durable_folder)/machine/*.c)
durable_embedded := $(patsubst %,$(durable_folder)/server/%.c, \
	server queues request store)
durable_sources := $(durable_machine) $(durable_embedded) \
	$(wildcard $(durable_folder)/client/*.c)

# Each program NAME is programs/NAME.c with what programs share, and hwtd the
# rest of server/. They use more than the library's functions, so they have its
# objects.
durable_bin := hwtd hwtctl hwt-exec hwt-http
durable_plugin := hwt.so
$(eval $(call module,durable))
# The explorer has no model of a server.
explored_alone += $(durable)

durable_hwtd := $(filter-out $(durable_embedded), \
	$(wildcard $(durable_folder)/server/*.c))
$(patsubst %,build/%/$(durable_folder)/server/http.o, \
	plain clang asan tsan cov): $(durable_folder)/server/page.html
durable_own = $(durable_folder)/programs/program.c $(if $(filter hwtd,$1), \
	$(durable_hwtd),$(durable_folder)/programs/$1.c)
durable_libs_hwtd := -lmicrohttpd
durable_libs_hwt-http := -lcurl -lcrypto
$(foreach w,plain clang asan tsan cov,$(durable_bin:%=build/$w/%)): build/%: \
		$$(call objects,$$(call durable_own,$$(@F)) $(durable)) \
		build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(durable_libs) \
		$(durable_libs_$(@F)) $(libs)

durable_redis := $(wildcard $(durable_folder)/redis/*.c)
$(foreach w,plain asan,$(durable_redis:%.c=build/$w/%.o)): own = -fPIC
build/%/hwt.so: $$(call objects,$(durable_machine) $(durable_redis))
	$(call say,LD)
	$(Q)$(link) -shared -o $@ $^

# The tests.
durable_test := $(durable_folder)/test
# With bounds that a few hundred tasks reach.
build/%/$(durable_test)/machine_model: $(durable_machine) \
		$(wildcard $(durable_folder)/machine/*.h) \
		$(durable_test)/machine_model.c $(durable_test)/machine_check.h
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(compile) -DADVANCE_WORK=90 -DTAKE_BYTES=90 \
		-o $@ $(filter %.c,$^)
build/fuzz/durable-machine: $$(call objects,$(durable_machine) \
		$(durable_test)/machine_fuzz.c)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs)
build/plain/$(durable_test)/faults.o: own = -fPIC -fvisibility=default
build/plain/faults.so: build/plain/$(durable_test)/faults.o
	$(call say,LD)
	$(Q)$(link) -shared -o $@ $^

# With the functions of the system under other names, to make them fail.
durable_support := test/spec/support.c test/script.c
durable_wrapped := $(sort $(shell sed -n \
	-e 's/^__wrap_\([a-z0-9_]*\).*/\1/p' \
	-e 's/^WRAP.[a-z *]*, \([a-z_]*\),.*/\1/p' $(durable_support)))
build/%/durable-test: private own_libs = $(durable_wrapped:%=-Wl,--wrap=%) \
	-lcriterion $(durable_libs)
build/%/durable-test: $$(call objects,$(wildcard $(durable_test)/spec/*.c) \
		$(durable_support)) $$(objects_$$*) build/%/libhwt_durable.a \
		build/%/libhwt.a
	$(link_program)

durable_client := $(durable_test)/client
$(foreach w,plain clang asan tsan cov,build/$w/$(durable_client)): %: %.o \
		build/$$(way)/libhwt_durable.a build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)

-include $(durable_folder)/perf/rules.mk
