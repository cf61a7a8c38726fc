/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats: one side sends one in every period, at a fixed rate that does not
 * drift; the other side takes the peer for dead when none came for three and a
 * half. Each beat that comes pushes that deadline out. hwt_touch does so in
 * every case: where tasks run by a mailbox, it may be due and lie there.
 */
#include "by_hand.h"

#include <errno.h>

#define PERIOD_NS HWT_MS(100)
#define DEAD_NS (3 * PERIOD_NS + PERIOD_NS / 2)

struct peer {
	hwt_timeout beat, dead;
	unsigned beats_sent, beats_got;
	bool is_cut, is_dead;
};

static struct hwt *timer;
static struct hwt_mailbox *mailbox;

static void declare_dead(hwt_timeout timeout, void *arg);

static void
peer_lives(struct peer *peer)
{
	must(hwt_touch(timer, hwt_mailbox_executor(mailbox), &peer->dead,
		 declare_dead, peer, DEAD_NS) == 0);
}

static void
peer_hears(struct peer *peer)
{
	peer->beats_got++;
	peer_lives(peer);
}

static void
send_beat(hwt_timeout timeout, void *arg)
{
	struct peer *peer = arg;

	(void)timeout;
	peer->beats_sent++;
	if (!peer->is_cut)
		peer_hears(peer);
}

static void
declare_dead(hwt_timeout timeout, void *arg)
{
	struct peer *peer = arg;

	must(timeout.id == peer->dead.id);
	peer->is_dead = true;
	/* Not running: it is ours at once. */
	must(hwt_cancel(timer, peer->beat) == 0);
}

static void
peer_start(struct peer *peer)
{
	must(hwt_new_periodic(timer, hwt_mailbox_executor(mailbox), &peer->beat,
		 send_beat, peer, PERIOD_NS, PERIOD_NS) == 0);
	peer_lives(peer);
}

/* A loop that is awake at each tick. */
static void
turns(uint64_t time_ns)
{
	while (time_ns > 0) {
		pass(timer, TICK_NS);
		must(hwt_mailbox_run(mailbox, 0, NULL) == 0);
		time_ns -= TICK_NS;
	}
}

int
main(void)
{
	struct peer peer = {0};

	timer = by_hand_create();
	must(hwt_mailbox_create(&mailbox) == 0);
	peer_start(&peer);
	turns(HWT_MIN(1));
	must(peer.beats_sent == 600 && peer.beats_got == 600);
	must(!peer.is_dead);

	/* The deadline has passed, and in the same turn of the loop a beat
	 * comes first. */
	peer.is_cut = true;
	turns(DEAD_NS - TICK_NS);
	pass(timer, TICK_NS);
	peer_hears(&peer);
	turns(DEAD_NS - TICK_NS);
	must(!peer.is_dead);
	turns(TICK_NS);
	must(peer.is_dead && hwt_pending_timeouts(timer) == 0);
	by_hand_destroy(timer, mailbox);
	printf("%u beats heard, then none\n", peer.beats_got);
	return 0;
}
