/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that wait in a take.
 *
 * Each name on which somebody waits has an entry, with a timer for the moment
 * at which its machine may have something. The timer, and each command that
 * changes the machine, tells the server that the key is ready; the server then
 * calls the take of each client again. So nothing runs while nobody waits.
 *
 * The server's timers and its limits of blocking go by the wall clock. In case
 * that was set, cron looks at all entries ten times a second, by the monotonic
 * clock.
 */
#include <string.h>

#include "modules/durable/redis/module.h"

struct blocked {
	struct waiting *waiting;
	struct blocked *next, *prev;
	blocked_client *client;
	uint64_t until_ns; /* UINT64_MAX: without limit */
};

/* A name in a database. */
struct waiting {
	struct node node;
	struct waiting *next, *prev; /* of all */
	struct blocked *clients;
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
static struct waiting *waiting_first;
static unsigned long long client_count;

unsigned long long
blocked_clients(void)
{
	return client_count;
}

/* Returns a block that the caller frees. */
static char *
place_of(context *ctx, string *name, size_t *length)
{
	int db = api.selected_db(ctx);
	const char *bytes = api.string_bytes(name, length);
	char *place = api.alloc(sizeof(db) + *length);

	memcpy(place, &db, sizeof(db));
	memcpy(place + sizeof(db), bytes, *length);
	*length += sizeof(db);
	return place;
}

static struct waiting *
waiting_find(context *ctx, string *name)
{
	struct waiting *waiting;
	size_t length;
	char *place;

	if (table.count == 0)
		return NULL;
	place = place_of(ctx, name, &length);
	waiting = (void *)table_find(&table, place, length);
	api.free(place);
	return waiting;
}

static struct waiting *
waiting_create(context *ctx, string *name)
{
	struct waiting *waiting;
	size_t length;
	char *place = place_of(ctx, name, &length);

	waiting = api.calloc(1, sizeof(*waiting) + length);
	waiting->length = length;
	memcpy(waiting->place, place, length);
	api.free(place);
	waiting->next = waiting_first;
	if (waiting_first != NULL)
		waiting_first->prev = waiting;
	waiting_first = waiting;
	table_insert(&table, &waiting->node);
	return waiting;
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
	if (waiting->prev != NULL)
		waiting->prev->next = waiting->next;
	else
		waiting_first = waiting->next;
	if (waiting->next != NULL)
		waiting->next->prev = waiting->prev;
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
timer_fired(context *ctx, void *data)
{
	struct waiting *waiting = data;
	string *name = waiting_select(ctx, waiting);

	waiting->timer_ns = 0;
	api.signal_ready(ctx, name);
	api.free_string(ctx, name);
}

void
blocked_look(context *ctx, string *name, struct queue *queue)
{
	struct waiting *waiting = waiting_find(ctx, name);
	uint64_t wait_ms, at_ns;

	if (waiting == NULL)
		return;
	wait_ms = machine_wait_ms(queue->machine, clock_time(&queue->clock));
	if (wait_ms == 0) {
		api.signal_ready(ctx, name);
		return;
	}
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

	if (blocked->prev != NULL)
		blocked->prev->next = blocked->next;
	else
		waiting->clients = blocked->next;
	if (blocked->next != NULL)
		blocked->next->prev = blocked->prev;
	if (waiting->clients == NULL)
		waiting_destroy(ctx, waiting);
	api.free(blocked);
	client_count--;
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
	struct waiting *waiting = waiting_find(ctx, name);
	struct blocked *blocked = api.calloc(1, sizeof(*blocked));

	if (waiting == NULL)
		waiting = waiting_create(ctx, name);
	*blocked = (struct blocked){
	    .waiting = waiting,
	    .next = waiting->clients,
	    .until_ns = block_ms == 0
		? UINT64_MAX
		: clock_steady_ns() + block_ms * CLOCK_MS_NS,
	};
	if (waiting->clients != NULL)
		waiting->clients->prev = blocked;
	waiting->clients = blocked;
	client_count++;
	blocked->client = api.block_on_keys(ctx, again, timed_out,
	    blocked_ended, (long long)block_ms, &name, 1, blocked);
}

static void
end_overdue(struct waiting *waiting, uint64_t now_ns)
{
	struct blocked *blocked, *next;

	for (blocked = waiting->clients; blocked != NULL; blocked = next) {
		next = blocked->next;
		if (blocked->until_ns > now_ns)
			continue;
		/* Once: the server ends it later. */
		blocked->until_ns = UINT64_MAX;
		(void)api.unblock(blocked->client, blocked);
	}
}

void
blocked_cron(context *ctx)
{
	uint64_t now_ns = clock_steady_ns();
	struct waiting *waiting, *next;

	for (waiting = waiting_first; waiting != NULL; waiting = next) {
		string *name = waiting_select(ctx, waiting);
		struct queue *queue = queue_find(ctx, name);

		next = waiting->next;
		if (queue != NULL && queue->mastership == mastership)
			blocked_look(ctx, name, queue);
		end_overdue(waiting, now_ns);
		api.free_string(ctx, name);
	}
}
