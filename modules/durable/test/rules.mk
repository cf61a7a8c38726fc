# SPDX-License-Identifier: Apache-2.0
#
# What the tests of the scripts need; read by ../rules.mk.

build/durable/clock.so: modules/durable/test/clock.c
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O2 -Wall -Wextra -Werror -fPIC -shared -o $@ $<

ifneq ($(ARCH),aarch64)
check check-all: build/durable/clock.so
endif

-include modules/durable/test/programs/rules.mk
