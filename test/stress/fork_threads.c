/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks from a thread while two others schedule and cancel on a timer, on the
 * shared timer, in a pool and in a mailbox, and a third makes, stops and
 * destroys timers, pools and mailboxes. Of the timer that is in the third one's
 * hands at the fork, in the middle of its start or stop, the child has a copy.
 *
 * What each child does is in fork.h.
 *
 * Not for sanitizers: ThreadSanitizer does not support threads in a child of
 * many threads, and AddressSanitizer's allocator may be locked at the fork by a
 * thread that the child does not have.
 */
#include "fork.h"

enum {
	FORKS = 2000,
	NOISES = 2,
	CHILDREN_MAX = 3
};

static struct family family;

static void *
maker_thread(void *arg)
{
	struct hwt_mailbox *mailbox;
	struct hwt_pool *pool;
	struct hwt *timer;

	(void)arg;
	while (!atomic_load(&noise_quit)) {
		timer = timer_create_ns(HWT_MS(1), 64, 0);
		atomic_store(&family.stopping, timer);
		family_schedule(timer);
		stress_must(!hwt_pool_create(&pool, 1, 0), "hwt_pool_create");
		stress_must(
		    !hwt_mailbox_create(&mailbox), "hwt_mailbox_create");
		stress_check(!hwt_stop(timer, NULL), "hwt_stop");
		atomic_store(&family.stopping, NULL);
		stress_check(!hwt_destroy(timer), "hwt_destroy");
		stress_check(!hwt_pool_destroy(pool), "hwt_pool_destroy");
		stress_check(
		    !hwt_mailbox_destroy(mailbox), "hwt_mailbox_destroy");
		stress_sleep_ns(HWT_US(200));
	}
	return NULL;
}

int
main(int argc, char **argv)
{
	pid_t children[CHILDREN_MAX] = {0};
	struct noise noises[NOISES];
	pthread_t maker;
	uint64_t forks, i;
	pid_t *child;

	stress_begin("fork_threads", argc, argv);
	forks = stress_scaled(FORKS);
	family_make(&family);
	for (i = 0; i < NOISES; i++)
		noise_start(&noises[i], &family, i);
	maker = stress_thread(maker_thread, NULL);
	for (i = 0; i < forks; i++) {
		stress_phase("fork from a thread", i);
		child = &children[i % CHILDREN_MAX];
		if (*child)
			child_reap(*child);
		*child = fork();
		stress_must(*child >= 0, "fork: %s", strerror(errno));
		if (!*child)
			child_main(&family, (unsigned)i);
	}
	for (i = 0; i < CHILDREN_MAX; i++)
		if (children[i])
			child_reap(children[i]);
	stress_phase("the end", 0);
	noise_end(noises, NOISES);
	stress_join(maker);
	family_end(&family);
	return stress_end("%" PRIu64 " children, %" PRIu64
			  " timeouts and %" PRIu64 " beside them",
	    forks, noises[0].accepted, noises[1].accepted);
}
