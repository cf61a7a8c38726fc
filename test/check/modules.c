/* SPDX-License-Identifier: Apache-2.0 */
/* As installed.c, a user's program, with the three modules. */
#include <hwt_checkout.h>
#include <hwt_durable.h>
#include <hwt_purgatory.h>

#include <errno.h>
#include <stdio.h>

int
main(void)
{
	const struct hwt_checkout_options checkout_options = {.shards = 0};
	const struct hwt_purgatory_options purgatory_options = {.shards = 0};
	struct hwt_purgatory *purgatory;
	struct hwt_checkout *checkout;
	struct hwt *timer;

	if (hwt_create(&timer, NULL) ||
	    hwt_purgatory_create(&purgatory, timer, &purgatory_options) ||
	    hwt_checkout_create(&checkout, timer, &checkout_options) ||
	    hwt_durable_open(NULL, NULL) != -EINVAL)
		return 1;
	if (hwt_checkout_destroy(checkout) ||
	    hwt_purgatory_destroy(purgatory) || hwt_stop(timer, NULL) ||
	    hwt_destroy(timer))
		return 1;
	puts(hwt_version());
	return 0;
}
