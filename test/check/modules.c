/* SPDX-License-Identifier: Apache-2.0 */
/* As installed.c, with the three modules. */
#include <hwt_checkout.h>
#include <hwt_durable.h>
#include <hwt_purgatory.h>

#include <errno.h>

int
main(void)
{
	puts(hwt_version());
	return hwt_checkout_destroy(NULL) || hwt_purgatory_destroy(NULL) ||
	    hwt_durable_open(NULL, NULL) != -EINVAL;
}
