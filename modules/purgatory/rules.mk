# SPDX-License-Identifier: Apache-2.0
#
# libhwt_purgatory, a module on top of libhwt; read by Makefile.

$(eval $(call module,purgatory))
$(eval $(call module_tests,purgatory))
