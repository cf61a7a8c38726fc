/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that wait in a take.
 *
 * Each name on which somebody waits has an entry, with a timer for the moment
 * at which its machine may have something; the timer advances the machine. It,
 * and each command that may change the machine, tells the server that the key
 * is ready if a take would find a task; the server then calls the take of each
 * client again. So nothing runs while nobody waits.
 *
 * REPLICATING. Redis 7.0 hands on what such a call has replicated only if that
 * ends the wait, and aborts at the next key that is ready otherwise; it calls
 * for keys that it has made itself, too, as by COPY. So a take runs again only
 * if it is certain to find a task; the timer does all else, as to begin the
 * epoch. Nor may anything be replicated while clients are paused, as they are
 * during a failover.
 *
 * The server's timers and its limits of blocking go by the wall clock. In case
 * that was set, and after a pause, cron looks at all entries ten times a
 * second, by the monotonic clock.
 */
#include <string.h>

#include "modules/durable/redis/module.h"

struct blocked {
	struct waiting *waiting;
	struct link link;
	blocked_client *client;
	uint64_t until_ns; /* UINT64_MAX: without limit */
};

/* A name in a database. */
struct waiting {
	struct node node;
	struct link clients;
	timer_id timer;
	uint64_t timer_ns; /* when it fires; 0: it is not armed */
	size_t length;
	char place[]; /* the database's number, the name */
};

static const void *
waiting_key(const struct node *node, size_t *length)
{
	const struct waiting *waiting = (const void *)node;

	*length = waiting->length;
	return waiting->place;
}

static struct table table = {.key = waiting_key};

/* The entry of a name; if there is none, a new one or NULL. */
static struct waiting *
waiting_get(context *ctx, string *name, bool make)
{
	int db = api.selected_db(ctx);
	size_t length;
	const char *bytes = api.string_bytes(name, &length);
	struct waiting *made, *found;

	if (table.count == 0 && !make)
		return NULL;
	made = api.calloc(1, sizeof(*made) + sizeof(db) + length);
	made->length = sizeof(db) + length;
	memcpy(made->place, &db, sizeof(db));
	memcpy(made->place + sizeof(db), bytes, length);
	found = (void *)table_find(&table, made->place, made->length);
	if (found == NULL && make) {
		list_init(&made->clients);
		table_insert(&table, &made->node);
		return made;
	}
	api.free(made);
	return found;
}

static void
timer_disarm(context *ctx, struct waiting *waiting)
{
	if (waiting->timer_ns != 0)
		(void)api.stop_timer(ctx, waiting->timer, NULL);
	waiting->timer_ns = 0;
}

static void
waiting_destroy(context *ctx, struct waiting *waiting)
{
	timer_disarm(ctx, waiting);
	table_remove(&table, &waiting->node);
	api.free(waiting);
}

/* Selects the database, and returns the name, which the caller frees. */
static string *
waiting_select(context *ctx, const struct waiting *waiting)
{
	int db;

	memcpy(&db, waiting->place, sizeof(db));
	(void)api.select_db(ctx, db);
	return api.create_string(
	    ctx, waiting->place + sizeof(db), waiting->length - sizeof(db));
}

static void
waiting_look(context *ctx, const struct waiting *waiting)
{
	string *name = waiting_select(ctx, waiting);

	if (!api.avoid_traffic())
		queue_advance(ctx, name);
	api.free_string(ctx, name);
}

static void
timer_fired(context *ctx, void *data)
{
	struct waiting *waiting = data;

	waiting->timer_ns = 0;
	waiting_look(ctx, waiting);
}

void
blocked_look(context *ctx, string *name, struct queue *queue)
{
	struct waiting *waiting = waiting_get(ctx, name, false);
	uint64_t wait_ms = 0, at_ns;

	if (waiting == NULL)
		return;
	if (queue_has_task(queue)) {
		api.signal_ready(ctx, name);
		return;
	}
	if (queue->mastership == mastership)
		wait_ms =
		    machine_wait_ms(queue->machine, clock_time(&queue->clock));
	if (wait_ms == TIME_NEVER) {
		timer_disarm(ctx, waiting);
		return;
	}
	at_ns = clock_steady_ns() + wait_ms * CLOCK_MS_NS;
	/* One that fires within the same millisecond does. */
	if (waiting->timer_ns != 0 &&
	    at_ns / CLOCK_MS_NS == waiting->timer_ns / CLOCK_MS_NS)
		return;
	timer_disarm(ctx, waiting);
	waiting->timer_ns = at_ns;
	waiting->timer =
	    api.create_timer(ctx, (long long)wait_ms, timer_fired, waiting);
}

/* However the wait has ended. */
static void
blocked_ended(context *ctx, void *data)
{
	struct blocked *blocked = data;
	struct waiting *waiting = blocked->waiting;

	list_remove(&blocked->link);
	if (list_is_empty(&waiting->clients))
		waiting_destroy(ctx, waiting);
	api.free(blocked);
}

static int
timed_out(context *ctx, string **argv, int argc)
{
	(void)argv;
	(void)argc;
	return api.reply_null(ctx);
}

void
blocked_add(
    context *ctx, string *name, uint64_t block_ms, command_function *again)
{
	struct waiting *waiting = waiting_get(ctx, name, true);
	struct blocked *blocked = api.calloc(1, sizeof(*blocked));

	*blocked = (struct blocked){
	    .waiting = waiting,
	    .until_ns = block_ms == 0
		? UINT64_MAX
		: clock_steady_ns() + block_ms * CLOCK_MS_NS,
	};
	list_insert(&waiting->clients, &blocked->link);
	blocked->client = api.block_on_keys(ctx, again, timed_out,
	    blocked_ended, (long long)block_ms, &name, 1, blocked);
}

static void
end_overdue(struct waiting *waiting, uint64_t now_ns)
{
	struct link *link;

	for (link = waiting->clients.next; link != &waiting->clients;
	     link = link->next) {
		struct blocked *blocked =
		    container_of(link, struct blocked, link);

		if (blocked->until_ns > now_ns)
			continue;
		/* Once: the server ends it later. */
		blocked->until_ns = UINT64_MAX;
		(void)api.unblock(blocked->client, blocked);
	}
}

static void
look_at(struct node *node, void *ctx)
{
	struct waiting *waiting = (void *)node;

	waiting_look(ctx, waiting);
	end_overdue(waiting, clock_steady_ns());
}

void
blocked_cron(context *ctx)
{
	uint64_t cursor = 0;

	do
		cursor = table_scan(&table, cursor, look_at, ctx);
	while (cursor != 0);
}
