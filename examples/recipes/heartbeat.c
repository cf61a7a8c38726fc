/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats: one side sends one in every period, at a fixed rate that does not
 * drift; the other side takes the peer for dead when none came for three and a
 * half. Each beat pushes that deadline out by hwt_touch, also from the mailbox.
 */
#include "recipe.h"

#define PERIOD_NS HWT_MS(100)
#define DEAD_NS (3 * PERIOD_NS + PERIOD_NS / 2)

struct peer {
	hwt_timeout beat, dead;
	unsigned beats;
	bool is_cut, is_dead;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;

/* Not in the beat's own task: the cancel wins, and no beat follows. */
static void
declare_dead(hwt_timeout timeout, void *arg)
{
	struct peer *peer = arg;

	must(timeout.id == peer->dead.id);
	peer->is_dead = true;
	must(hwt_cancel(timer, peer->beat) == 0);
}

static void
hear_beat(struct peer *peer)
{
	must(hwt_touch(timer, hwt_mailbox_executor(mailbox), &peer->dead,
		 declare_dead, peer, DEAD_NS) == 0);
}

static void
send_beat(hwt_timeout timeout, void *arg)
{
	struct peer *peer = arg;

	(void)timeout;
	if (peer->is_cut)
		return;
	peer->beats++;
	hear_beat(peer);
}

/* A loop that is awake at each tick. */
static void
turns(uint64_t time_ns)
{
	for (; time_ns > 0; time_ns -= TICK_NS) {
		pass(timer, TICK_NS);
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
	}
}

int
main(void)
{
	struct peer peer = {.beats = 0};

	timer = by_hand_create();
	must(hwt_mailbox_create(&mailbox) == 0);
	must(hwt_new_periodic(timer, hwt_mailbox_executor(mailbox), &peer.beat,
		 send_beat, &peer, PERIOD_NS, PERIOD_NS) == 0);
	turns(HWT_MIN(1));
	must(peer.beats == 600 && !peer.is_dead);
	peer.is_cut = true;
	turns(DEAD_NS - TICK_NS);
	must(!peer.is_dead);
	turns(TICK_NS);
	must(peer.is_dead && hwt_pending_timeouts(timer) == 0);
	teardown(timer, mailbox);
	printf("%u beats heard, then none\n", peer.beats);
	return 0;
}
