# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the scripts need; read by ../rules.mk.

build/durable/clock.so: modules/durable/test/clock.c
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared -o $@ $<

.PHONY: durable-seeds
durable-seeds: build/durable/clock.so $(durable_demo) $(durable_programs) \
		build/plain/modules/durable/test/programs/client
	$(Q)python3 -B modules/durable/test/seeds.py $(SEEDS)

.PHONY: durable-cut
durable-cut: build/durable/clock.so build/plain/hwt-aof-repair
	$(Q)python3 -B modules/durable/test/cut.py $(CUT)

durable-tests: build/durable/clock.so

-include modules/durable/test/programs/rules.mk
