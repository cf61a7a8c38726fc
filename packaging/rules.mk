# SPDX-License-Identifier: Apache-2.0
#
# How the library gets to its users; read by Makefile.

INSTALL ?= install
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR ?= $(PREFIX)/share/doc/hwt
MANDIR ?= $(PREFIX)/share/man
ifneq ($(filter $(installed),$(MAKECMDGOALS)),)
$(foreach v,PREFIX LIBDIR INCLUDEDIR DOCDIR MANDIR,$(if $(filter-out /%, \
	$(firstword $($v))),$(error $v=$($v): not a path that begins with /)))
endif

lib := $(DESTDIR)$(LIBDIR)
include := $(DESTDIR)$(INCLUDEDIR)
doc := $(DESTDIR)$(DOCDIR)
man := $(DESTDIR)$(MANDIR)
headers := hwt.h $(wildcard hwt.hpp)
texts := README LICENSE $(wildcard CHANGES)
pages := $(wildcard man/*.[1-9])
# What README names, under the same names beside it.
named := docs/RECIPES tools/hwt-gdb.py tools/hwt.bt bindings/python/hwt.py \
	examples/must.h $(wildcard examples/recipes/* examples/loops/*)
named_folders := docs tools bindings/python bindings examples/recipes \
	examples/loops examples
cmake := cmake/hwt/hwt-config.cmake cmake/hwt/hwt-config-version.cmake

# $(call fill,FILE): packaging/FILE.in with the folders. Those of hwt.pc are
# told by its prefix where they can be. The CMake package finds them from where
# it lies, wherever that is moved to.
fill = $(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' \
	-e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	-e 's|dir=$(PREFIX)/|dir=$${prefix}/|' \
	-e "s|@TO_INCLUDE@|$$(realpath -sm '$(INCLUDEDIR)' \
		--relative-to='$(LIBDIR)/cmake/hwt')|" \
	-e 's|@VERSION@|$(version)|' \
	-e 's|@SO@|$(so)|' -e 's|@SONAME@|$(soname)|' \
	-e "s|@LIBS@|$$(cat build/plain/libs)|" packaging/$(notdir $1).in \
	>'$(lib)/$1' && chmod 644 '$(lib)/$1'

# The linker's cache is the administrator's to refresh: ldconfig.
install: all
	$(Q)$(INSTALL) -d '$(lib)/pkgconfig' '$(lib)/cmake/hwt' '$(include)' \
		'$(doc)'
	$(Q)$(INSTALL) -m 644 $(headers) '$(include)'
	$(Q)$(INSTALL) -m 644 build/plain/libhwt.a '$(lib)'
	$(Q)$(INSTALL) -m 755 build/plain/$(so) '$(lib)'
	$(Q)ln -sf $(so) '$(lib)/$(soname)'
	$(Q)ln -sf $(soname) '$(lib)/libhwt.so'
	$(call fill,pkgconfig/hwt.pc)
	$(call fill,cmake/hwt/hwt-config.cmake)
	$(call fill,cmake/hwt/hwt-config-version.cmake)
	$(Q)$(INSTALL) -m 644 $(texts) '$(doc)'
	$(Q)for file in $(named); do \
		$(INSTALL) -D -m 644 $$file '$(doc)'/$$file; done
	$(Q)for page in $(pages); do \
		$(INSTALL) -D -m 644 $$page -t '$(man)/man'$${page##*.}; done
	@echo '  installed hwt $(version) in $(DESTDIR)$(PREFIX)'

# Takes away its own files, and of the folders those that are empty then.
uninstall:
	$(Q)removed=$$( \
	rm -fv $(headers:%='$(include)/%') $(texts:%='$(doc)/%') \
		$(named:%='$(doc)/%') $(patsubst %,'$(lib)/%',pkgconfig/hwt.pc \
		$(cmake) libhwt.a libhwt.so $(soname) $(so)); \
	for page in $(pages:man/%=%); do \
		rm -fv '$(man)/man'$${page##*.}/$$page; done); \
	rmdir $(named_folders:%='$(doc)/%') '$(doc)' '$(lib)/cmake/hwt' \
		'$(lib)/cmake' '$(lib)/pkgconfig' '$(man)'/man[1-9] \
		2>/dev/null; \
	echo "  removed $$(echo "$$removed" | grep -c .) files of hwt from" \
		'$(DESTDIR)$(PREFIX)'

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

# What programs see of the library. A release copies its build/abi/VERSION.xml
# and .h to packaging/abi.
last_abi := -g -O0
abi: build/abi/$(so)
	@packaging/abi/compare $< hwt.h
build/abi/$(version).xml: build/abi/$(so)
	abidw --no-corpus-path --no-comp-dir-path --no-show-locs \
		--exported-interfaces-only --drop-private-types \
		--header-file hwt.h --out-file $@ $<
build/abi/$(version).h: hwt.h build/abi/flags
	(echo '/* SPDX-License-Identifier: Apache-2.0 */' && \
		grep '^.define HWT_[A-Z]* ' $< | grep -v VERSION) >$@

deb:
	@packaging/deb build/deb $(version)
