# SPDX-License-Identifier: Apache-2.0
#
# How files are compiled and linked; read by Makefile.

Q := $(if $(filter-out 0,$(V)),,@)
say = $(if $Q,@echo '  $1 $@')
hash := \#
define newline


endef

# demo, check and check-all install the packages that they need; other goals
# name what they miss, and stop. make -n does neither.
needy := $(filter demo% $(packed) $(moduled) \
	$(tested),$(MAKECMDGOALS:check=check$(ARCH:%=-%)))
needy := $(if $(findstring n,$(firstword -$(MAKEFLAGS))),,$(needy))
ifneq ($(needy),)
ifneq ($(shell tools/deps $(if $(filter demo% check%,$(needy)),,--tell) \
	$(needy) >&2 && echo there),there)
$(error what is needed is not there)
endif
# Alone, they use all cores, unless -j says otherwise.
ifeq ($(words $(MAKECMDGOALS))$(filter -j%,$(MAKEFLAGS)),1)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
endif

# For tools that must be those of another machine.
cross = $(if $(filter aarch64,$(way)),aarch64-linux-gnu-)

# build/WAY/FILE.o is FILE.c built in one way: with the compiler cc_WAY, and
# with flags_WAY, link_WAY and libs_WAY.
way = $(word 2,$(subst /, ,$@))
source = $(@:build/$(way)/%.o=%.c)
objects = $(1:%.c=build/$(way)/%.o)
cc = $(or $(cc_$(way)),$(CC))
flags_tsan := -fsanitize=thread
warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith -Wcast-qual -Wwrite-strings -Wvla -Wundef \
	-Wformat=2 -Wdouble-promotion -Walloca -Wold-style-definition \
	-Wmissing-declarations -Wredundant-decls -Wdate-time \
	-Wno-missing-field-initializers
compile = $(cc) -std=gnu11 -I. $(CPPFLAGS) -pthread -fvisibility=hidden \
	$(warnings) $(if $(filter-out 0,$(WERROR)),-Werror) $(flags_$(way)) \
	$(CFLAGS) $(last_$(way))
link = $(cc) -pthread $(flags_$(way)) $(CFLAGS) $(last_$(way)) \
	$(link_$(way)) $(LDFLAGS)
libs = $(libs_$(way)) @build/$(way)/libs $(LDLIBS)
# The library's objects fit into programs and into shared objects.
position = $(if $(filter $(core) $(module_sources),$<), \
	-fPIC -fno-semantic-interposition)
# The suites take longer to compile than to run.
unoptimized = $(if $(findstring test/spec/,$<),-O0 -U_FORTIFY_SOURCE)

# Changes when the commands do, so that no object stays that others made; and
# when what sys/probe.h needs has come or gone.
sdt := $(wildcard /usr/include/sys/sdt.h /usr/include/*/sys/sdt.h)
build/%/flags: force
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(compile) $(link)) $(sdt)' >$@.new
	@if cmp -s $@.new $@; then rm $@.new; \
		else tools/probe $(@D) $(compile) && mv $@.new $@; fi

build/%.o: $$(source) build/$$(way)/flags
	$(call say,CC)
	@mkdir -p $(@D)
	$(Q)$(compile) @build/$(way)/known $(position) \
		$(unoptimized) $(own) \
		-MMD -MP -c -o $@ $<
