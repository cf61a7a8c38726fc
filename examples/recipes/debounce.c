/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many changes, one write: the file is written when nothing has changed for a
 * moment, and at the latest some time after the first change, so that a stream
 * of changes does not put it off for ever. The write runs on the loop's thread,
 * by a mailbox; where it runs in another, file needs a lock.
 */
#include "recipe.h"

#define QUIET_NS HWT_MS(50)
#define LATEST_NS HWT_MS(500)

static struct {
	hwt_timeout write;
	uint64_t latest_ns;
	unsigned writes;
} file;

static struct hwt *timer;
static struct hwt_mailbox *mailbox;

static void
write_file(hwt_timeout timeout, void *arg)
{
	(void)arg;
	must(timeout.id == file.write.id);
	file.write = (hwt_timeout){0};
	file.writes++;
}

static void
changed(void)
{
	uint64_t deadline_ns = now_ns + QUIET_NS;
	int error;

	if (file.write.id == 0) {
		file.latest_ns = now_ns + LATEST_NS;
		must(hwt_new_timeout_at(timer, hwt_mailbox_executor(mailbox),
			 &file.write, write_file, NULL, deadline_ns) == 0);
		return;
	}
	if (deadline_ns > file.latest_ns)
		deadline_ns = file.latest_ns;
	error = hwt_reschedule_at(timer, file.write, deadline_ns);
	/* -EINPROGRESS: it is due already, and writes this change too. */
	must(error == 0 || error == -EINPROGRESS);
}

static void
turn(uint64_t time_ns)
{
	pass(timer, time_ns);
	must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
}

int
main(void)
{
	int i;

	timer = by_hand_create();
	must(hwt_mailbox_create(&mailbox) == 0);
	for (i = 0; i < 20; i++) {
		changed();
		turn(HWT_MS(10));
	}
	turn(HWT_SEC(1));
	must(file.writes == 1);
	/* Without a pause: every 500 ms, counted from the first change. */
	for (i = 0; i < 500; i++) {
		changed();
		turn(HWT_MS(10));
	}
	turn(HWT_SEC(1));
	must(file.writes == 11 && file.write.id == 0);
	teardown(timer, mailbox);
	printf("520 changes, %u writes\n", file.writes);
	return 0;
}
