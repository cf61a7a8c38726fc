# SPDX-License-Identifier: Apache-2.0
#
# libhwt_purgatory, a module on top of libhwt; read by Makefile. It needs
# <bsd/sys/tree.h>, which is a header and no library.

purgatory_header := bsd/sys/tree.h
purgatory_package := libbsd-dev
$(eval $(call module,purgatory))
# The explorer has a model in the place of memory.c, and no files.
explored_alone += modules/purgatory/memory.c modules/purgatory/stats_write.c
$(eval $(call module_tests,purgatory))
