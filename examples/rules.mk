# SPDX-License-Identifier: Apache-2.0
#
# Built and run by make demo, demo-memcached and wheel, and programs that
# stand alone; read by Makefile.

# With musl they are static.
example_names := $(patsubst %,examples/%,demo httpd wheel)
examples := $(example_names:%=build/plain/%)
examples_musl := $(example_names:%=build/musl/%)
$(examples) $(examples_musl): %: %.o build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) $(if $(filter musl,$(way)),-static) -o $@ $^ $(libs)

# It has the page in it.
$(patsubst %,build/%/examples/httpd.o,plain clang musl): examples/timer.html

demo: build/plain/examples/demo build/plain/examples/httpd
	@build/plain/examples/demo $(or $(DEMO),14)

# The wheel turns in the terminal: WHEEL='ticks per second'.
wheel: build/plain/examples/wheel
	@build/plain/examples/wheel $(or $(WHEEL),16)

# Operations that wait: it needs the module purgatory.
longpoll := build/plain/examples/longpoll/longpoll
purgatory_doc += $(wildcard examples/longpoll/*)
longpoll_parts := $(patsubst %.c,build/plain/%.o, \
	$(wildcard examples/longpoll/*.c))
$(longpoll_parts): own = -Imodules/purgatory
$(longpoll): $(longpoll_parts) \
		build/plain/libhwt_purgatory.a build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs)

demo-longpoll: $(longpoll)
	@$(longpoll) demo $(DEMO)

# A pool of connections to a Redis: it needs the module checkout, and hiredis.
pool := build/plain/examples/pool/pool
checkout_doc += $(wildcard examples/pool/*)
pool_parts := $(patsubst %.c,build/plain/%.o,$(wildcard examples/pool/*.c))
$(pool_parts): own = -Imodules/checkout
$(pool): $(pool_parts) \
		build/plain/libhwt_checkout.a build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ -lhiredis $(libs)

demo-pool: $(pool)
	@$(pool)

# Delayed tasks: it needs the module durable.
orders := build/plain/examples/durable/orders
durable_doc += $(wildcard examples/durable/*)
$(orders).o: own = -Imodules/durable
$(orders): $(orders).o build/plain/libhwt_durable.a build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ -lhiredis -lsqlite3 $(libs)

demo-durable: $(orders) build/plain/hwtd
	@examples/durable/demo $(DEMO)

.PHONY: demo-memcached demo-longpoll demo-pool demo-durable
demo-memcached: build/plain/libhwt.a
	@examples/memcached/run

# Each file of recipes and loops is a program of its own. The tests run them.
recipes := $(wildcard examples/recipes/*.c)
loops := $(wildcard examples/loops/*.c)
loop_libs_libuv := -luv
loop_libs_libevent := -levent_core
alone := $(foreach w,plain asan tsan,$(patsubst %.c,build/$w/%,\
	$(recipes) $(loops)))
$(alone): %: %.o build/$$(way)/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(loop_libs_$(@F)) $(libs)
