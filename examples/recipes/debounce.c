/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many changes, one write: the file is written when nothing has changed for a
 * moment, and at the latest a while after the first change, so that a stream
 * of changes without a pause does not put it off for ever.
 *
 * The write runs on the loop's thread, by a mailbox. Where it runs in another,
 * changed and write_file take a lock for what they do with struct file.
 */
#include "by_hand.h"

#include <errno.h>

#define QUIET_NS HWT_MS(50)
#define LATEST_NS HWT_MS(500)

struct file {
	hwt_timeout write;
	uint64_t latest_ns;
	unsigned writes;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;

static void
write_file(hwt_timeout timeout, void *arg)
{
	struct file *file = arg;

	must(timeout.id == file->write.id);
	file->write = (hwt_timeout){0};
	file->writes++;
}

static void
changed(struct file *file)
{
	uint64_t deadline_ns = now_ns + QUIET_NS;
	int error;

	if (file->write.id == 0) {
		file->latest_ns = now_ns + LATEST_NS;
		must(hwt_new_timeout_at(timer, hwt_mailbox_executor(mailbox),
			 &file->write, write_file, file, deadline_ns) == 0);
		return;
	}
	if (deadline_ns > file->latest_ns)
		deadline_ns = file->latest_ns;
	error = hwt_reschedule_at(timer, file->write, deadline_ns);
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
	struct file file = {0};
	int i;

	timer = by_hand_create();
	must(hwt_mailbox_create(&mailbox) == 0);
	for (i = 0; i < 20; i++) {
		changed(&file);
		turn(HWT_MS(10));
	}
	turn(HWT_MS(30));
	must(file.writes == 0);
	turn(HWT_MS(10));
	must(file.writes == 1);
	turn(HWT_SEC(1));
	must(file.writes == 1);

	/* Without a pause: every 500 ms, counted from the first change. */
	for (i = 0; i < 500; i++) {
		changed(&file);
		turn(HWT_MS(10));
	}
	turn(HWT_SEC(1));
	must(file.writes == 11);

	/* A change while the write is due and lies in the mailbox. */
	changed(&file);
	pass(timer, QUIET_NS);
	changed(&file);
	turn(HWT_SEC(1));
	must(file.writes == 12 && file.write.id == 0);
	by_hand_destroy(timer, mailbox);
	printf("522 changes, %u writes\n", file.writes);
	return 0;
}
