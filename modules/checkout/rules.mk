# SPDX-License-Identifier: Apache-2.0
#
# libhwt_checkout, a module on top of libhwt; read by Makefile.

$(eval $(call module,checkout))
$(eval $(call module_tests,checkout))
