/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program: it sees the installed header and libraries only. It
 * prints the version that it runs with. */
#include <hwt.h>
#include <semaphore.h>
#include <stdio.h>

static void
task(hwt_timeout timeout, void *arg)
{
	(void)timeout;
	sem_post(arg);
}

int
main(void)
{
	struct hwt_options options = {.tick_ns = HWT_MS(1)};
	struct hwt_unprocessed left;
	struct hwt *timer;
	sem_t ran;

	sem_init(&ran, 0, 0);
	if (hwt_create(&timer, &options) ||
	    hwt_new_timeout(timer, NULL, task, &ran, HWT_MS(2)))
		return 1;
	while (sem_wait(&ran))
		continue;
	if (hwt_stop(timer, &left) || left.count || hwt_destroy(timer))
		return 1;
	puts(hwt_version());
	return 0;
}
