# SPDX-License-Identifier: Apache-2.0
#
# What make demo builds and runs; read by Makefile.

# Of the examples, these are programs; the others are parts of each of them.
examples := $(patsubst %,build/plain/examples/%,demo httpd hostile)
example_parts := $(filter-out $(examples:%=%.o), \
	$(patsubst %.c,build/plain/%.o,$(wildcard examples/*.c)))
$(examples): %: %.o $(example_parts) build/plain/libhwt.a
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs)

demo: $(examples)
	@build/plain/examples/demo
