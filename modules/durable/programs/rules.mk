# SPDX-License-Identifier: Apache-2.0
#
# What make demo-durable builds and runs, and the tests of the programs; read
# by ../rules.mk.

durable_demo := build/plain/examples/durable/worker \
	build/plain/examples/durable/producer
durable_doc += $(wildcard examples/durable/*.c examples/durable/http/*.[mps]*)
$(durable_demo:%=%.o): own = -Imodules/durable
$(durable_demo): %: %.o build/plain/libhwt_durable.a build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)

.PHONY: demo-durable
demo-durable: $(durable_demo) $(durable_programs)
	@examples/durable/demo $(DEMO)

durable-tests: $(durable_demo)
