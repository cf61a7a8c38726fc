# SPDX-License-Identifier: Apache-2.0
#
# How the library gets to its users; read by Makefile.

INSTALL ?= install
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
DOCDIR ?= $(PREFIX)/share/doc/hwt
MANDIR ?= $(PREFIX)/share/man

# Variables of each part of the library, hwt itself or a module:
# tools/module.mk names the lists.
hwt_include := hwt.h $(wildcard hwt.hpp)
hwt_man := $(wildcard man/*.[1-9])
hwt_pages := hwt.h
hwt_doc := README LICENSE $(wildcard CHANGES) docs/RECIPES \
	examples/must.h $(wildcard examples/recipes/* examples/loops/*)
hwt_fill := pkgconfig/hwt.pc $(patsubst %,cmake/hwt/hwt-%.cmake, \
	config config-version targets hiredis)
hwt_python := bindings/python/hwt.py

lib := $(DESTDIR)$(LIBDIR)
include := $(DESTDIR)$(INCLUDEDIR)
bin := $(DESTDIR)$(BINDIR)
doc := $(DESTDIR)$(DOCDIR)
man := $(DESTDIR)$(MANDIR)
python = $(DESTDIR)$(PYTHONDIR)

ifneq ($(filter $(installed),$(MAKECMDGOALS)),)
# They are written into files by sed, and read there by pkg-config.
special := ' " ` \ | & $$ [ ] * $(hash)
checked = $(foreach v,$1,$(if $(or $(filter-out /%,$(firstword $($v))), \
	$(strip $(foreach c,$(special),$(findstring $c,$($v))))), \
	$(error $v=$($v): not a path that begins with / and has none \
	of $(special))))
$(call checked,PREFIX LIBDIR INCLUDEDIR BINDIR DOCDIR MANDIR)

# Where a python3 looks for modules in PREFIX. Without any nobody knows, but for
# Debian's packages.
ifeq ($(origin PYTHONDIR),undefined)
PYTHONDIR := $(shell for python in python3 /usr/bin/python3; do \
	$$python packaging/pythondir '$(PREFIX)' 2>/dev/null && exit; done; \
	if [ '$(PREFIX)' = /usr ] || command -v python3 >/dev/null; then \
		echo '$(PREFIX)/lib/python3/dist-packages'; fi)
endif
$(call checked,PYTHONDIR)
endif

# All that can be built: each module whose headers are there.
usable := $(MODULES)
ifneq ($(filter install tidy,$(MAKECMDGOALS)),)
has = $(shell printf '$(hash)include <%s>\n' $1 | \
	$(CC) $(CPPFLAGS) -E -x c - >/dev/null 2>&1 && echo yes)
usable := $(foreach m,$(MODULES),$(if $(or $(if $($m_header),,yes), \
	$(call has,$($m_header))),$m))
without_ck := $(if $(call has,ck_pr.h),,yes)
endif

# $(call fill,FILE): a file of LIBDIR from its template, FILE.in, with the
# folders. Those of a .pc file are told by its prefix where they can be. The
# CMake package and hwt.py find theirs from where they lie, wherever that is
# moved to.
fill = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
	-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	-e 's|dir=$(PREFIX)/|dir=$${prefix}/|' \
	-e "s|@TO_INCLUDE@|$$(realpath -sm '$(INCLUDEDIR)' \
		--relative-to='$(LIBDIR)/cmake/hwt')|" \
	-e 's|@VERSION@|$(version)|' \
	-e 's|@SO@|$(so)|' -e 's|@SONAME@|$(soname)|' \
	-e "s|@LIBS@|$$(cat build/plain/libs)|" \
	$(or $(wildcard $(addsuffix /$(notdir $1).in,packaging modules/*)), \
		$(error $1 has no template))
fill_python = sed "s|^_LIBRARY = .*|_LIBRARY = \"$$(realpath -sm '$(LIBDIR)' \
	--relative-to='$(PYTHONDIR)')/$(soname)\"|"

# $(call put,PART): installs it.
library = libhwt$(addprefix _,$(filter-out hwt,$1))
put_each = $(if $1,for file in $1; do $(INSTALL) -D -m $2 $3 || exit; done)
define put
$(Q)$(INSTALL) -d '$(include)' '$(lib)' $(patsubst %,'$(lib)'/%, \
	$(sort $(dir $($1_fill))))
$(Q)$(INSTALL) -m 644 $($1_include) '$(include)'
$(Q)$(INSTALL) -m 644 build/plain/$(library).a '$(lib)'
$(Q)$(INSTALL) -m 755 build/plain/$(library).so.$(version) '$(lib)'
$(Q)ln -sf $(library).so.$(version) '$(lib)/$(library).so.$(major)'
$(Q)ln -sf $(library).so.$(major) '$(lib)/$(library).so'
$(foreach f,$($1_fill),$(Q)$(call fill,$f) >'$(lib)/$f' && \
	chmod 644 '$(lib)/$f'$(newline))
$(Q)$(call put_each,$($1_bin),755,build/plain/$$file -t '$(bin)')
$(Q)$(call put_each,$($1_plugin),644,build/plain/$$file -t '$(lib)/hwt')
$(Q)$(call put_each,$($1_doc),644,$$file '$(doc)'/$$file)
$(Q)$(call put_each,$($1_man),644,$$file -t '$(man)/man'$${file##*.})
$(Q)$(INSTALL) -d '$(man)/man3'
$(Q)umask 022 && tools/pages $($1_pages) '$(man)/man3'
$(Q)$(if $(PYTHONDIR),$(call put_each,$($1_python),644,$$file -t '$(python)' \
	&& $(fill_python) $$file >'$(python)'/$${file##*/}))

endef

# Nothing is installed before everything is built. The linker's cache is the
# administrator's to refresh: ldconfig.
install: all $(usable)
	$(foreach part,hwt $(usable),$(call put,$(part)))
	@$(foreach m,$(filter-out $(usable),$(MODULES)), \
		echo '  left out: $m, which needs $($m_header): $($m_package)';)
	@$(if $(PYTHONDIR),,echo '  left out: hwt.py, which needs python3')
	@$(if $(without_ck),echo '  left out: ConcurrencyKit (libck-dev):' \
		"C11's atomics serve instead")
	@echo '  installed hwt $(version)$(if $(usable), with)' \
		$(usable) 'in $(DESTDIR)$(PREFIX)'

# $(call take,PARTS): takes away their files, those that are there, and of the
# folders that only such files are in those that are empty then.
from = $(if $2,[ ! -d '$1' ] || (cd '$1' && rm -fv $2) || exit;)
each = $(foreach p,$1,$($p_$2))
define take
$(Q)removed=$$($(call from,$(include),$(notdir $(call each,$1,include))) \
	$(call from,$(lib),$(call each,$1,fill) $(foreach p,$1, \
		$(addprefix $(call library,$p),.a .so .so.$(major) \
		.so.$(version)))) \
	$(call from,$(bin),$(call each,$1,bin)) \
	$(call from,$(lib)/hwt,$(call each,$1,plugin)) \
	$(call from,$(doc),$(call each,$1,doc)) \
	$(call from,$(man),$(foreach f,$(call each,$1,man), \
		man$(subst .,,$(suffix $f))/$(notdir $f))) \
	$(call from,$(man)/man3,$(foreach p,$1, \
		$(patsubst %,%.3,$(shell tools/pages $($p_pages))))) \
	$(if $(PYTHONDIR),$(call from,$(python), \
		$(notdir $(call each,$1,python))))) || exit; \
$(if $(PYTHONDIR),$(foreach f,$(notdir $(call each,$1,python)), \
	rm -f '$(python)/__pycache__/$(f:py=)'*; )) \
rmdir $(addprefix '$(lib)'/,$(sort $(dir $(call each,$1,fill)))) \
	'$(lib)/cmake' '$(lib)/hwt' '$(man)'/man[1-9] '$(python)/__pycache__' \
	2>/dev/null; \
find '$(doc)' -depth -type d -empty -delete 2>/dev/null; \
echo "  removed $$(echo "$$removed" | grep -c .) files of" \
	'$(if $(filter hwt,$1),hwt,$1) from $(DESTDIR)$(PREFIX)'
endef

uninstall:
	$(call take,hwt $(MODULES))
single: build/single/hwt.c
	@echo "  the library is in $(<D): hwt.h and hwt.c; for C++ also hwt.hpp"
build/single/hwt.c: $(headers) $(core) $(wildcard $(addsuffix *.h, \
		$(sort $(dir $(core))))) packaging/single
	$(call say,WRITE)
	@packaging/single $(@D) $(core)

# Compiled as a stranger would, and so that nothing is said.
build/single/hwt.o: build/single/hwt.c
	$(call say,CC)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -Wall -Wextra -Wpedantic -Wshadow \
		-Werror -c -o $@ $<

deb:
	@packaging/deb build/deb $(version)
release:
	@packaging/release build/release $(version)
