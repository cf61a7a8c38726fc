# SPDX-License-Identifier: Apache-2.0
#
# libhwt_checkout, a module on top of libhwt; read by Makefile.

$(eval $(call module,checkout))
$(eval $(call module_tests,checkout))

# To make memory fail.
$(foreach w,plain clang asan tsan cov musl aarch64, \
	build/$w/$(checkout_test)/stress/checkout_model): \
	private own_libs = $(patsubst %,-Wl$(,)--wrap=%, \
	malloc calloc aligned_alloc)
