/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load ADDRESS [NAME=VALUE ...]: clients of one engine, all in one thread, so
 * that they take as little of the machine as they can. main.py and billion.py
 * name the cases.
 *
 *   adders=N batch=N    connections that add, and how many tasks in an add
 *   workers=N limit=N   connections that take, and the most they take at once
 *   seconds=N           the time of the adds; or
 *   count=N             the tasks that are added
 *   rate=N              adds a second; 0: as fast as they are answered
 *   peak=N              adds a second in the middle tenth of each 10 minutes,
 *                       or of the whole time if that is less
 *   window=N            the most tasks that are added and not executed
 *   delay=MS spread=MS  a task is due delay, and up to spread, after its add
 *   visibility=MS       of a lease
 *   kill=1              the engine will be killed: connect again, and go on
 *   drop=MS             each so often a worker or an adder loses its connection
 *                       as if it was killed, with what it holds
 *
 * An add that was not answered is sent again. A worker ends what it has taken
 * with its next take. When nothing is added any more, workers go on until all
 * is executed, or nothing has come for twice the visibility.
 *
 * The account: a task that was acknowledged and not executed is lost. A task is
 * executed again with a cause if its attempt was cut by the engine's end (cut),
 * by a dropped connection (dropped), or outlived its lease (late); any other
 * second execution has none (unexplained). The last line is names and values;
 * lateness is from the due time until the worker has the task, in us, and has
 * a second set from each kill or drop until 5 s after leases of it have ended.
 */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/perf/engine.h"

#define TASKS_MAX (UINT64_C(1) << 31)
#define CLIENTS_MAX 64
#define CONNECT_SECONDS 60
#define KILL_US (5 * SEC_US)
#define PERIOD_SECONDS 600
#define SEC_US UINT64_C(1000000)
/* Of a histogram: 64 for each power of 2. */
#define SLOTS (64 * 40)

enum {
	ACKNOWLEDGED = 128,
	CUT = 64,
	DROPPED = 32,
	LATE = 16,
	EXECUTIONS = 15
};

/* Each option with what it is without being given. */
#define OPTIONS(o)                                                             \
	o(adders, 1) o(batch, 1) o(workers, 0) o(limit, 1) o(seconds, 0)       \
	    o(count, 0) o(rate, 0) o(peak, 0) o(window, TASKS_MAX) o(delay, 0) \
		o(spread, 0) o(visibility, 30000) o(kill, 0) o(drop, 0)
#define FIELD(name, value) uint64_t name;
#define VALUE(name, value) .name = (value),
#define PLACE(name, value) {#name, &given.name},

static struct {
	OPTIONS(FIELD)
} given = {OPTIONS(VALUE)};

static const struct {
	const char *name;
	uint64_t *value;
} names[] = {OPTIONS(PLACE)};

/* The first ones add, the others take. An adder keeps its tasks until they are
 * answered, a worker until it has the answer to their end. */
struct client {
	struct connection *connection;
	struct task tasks[BATCH_MAX];
	size_t count;
	bool adds, busy, again; /* the same add is to be sent again */
	uint64_t wake_us; /* it does nothing before */
	uint64_t taken_us;
};

struct lateness {
	uint64_t count, most, slots[SLOTS];
};

static const char *address;
static struct client clients[CLIENTS_MAX];
static size_t client_count;
static uint8_t *seen; /* of each number: the flags above */
static struct lateness lateness[2]; /* [1]: near a kill */
static struct {
	uint64_t added, executed, again, early, behind;
	uint64_t cut, dropped, late, unexplained;
} total;
static uint64_t numbered;
static uint64_t start_us, last_us, adds_end_us, kill_us, drop_us;

void
fail(const char *what, const char *why)
{
	(void)fprintf(stderr, "load: %s: %s\n", what, why);
	exit(1);
}

void
payload_write(char *payload, const struct task *task)
{
	int n = snprintf(payload, PAYLOAD_SIZE + 1,
	    "%016" PRIu64 " %016" PRIu64, task->number, task->due_ms);

	memset(payload + n, '.', PAYLOAD_SIZE - (size_t)n);
	payload[PAYLOAD_SIZE] = '\0';
}

void
payload_read(const char *payload, struct task *task)
{
	task->number = strtoull(payload, NULL, 10);
	task->due_ms = strtoull(payload + 17, NULL, 10);
}

static uint64_t
clock_us(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * SEC_US + (uint64_t)ts.tv_nsec / 1000;
}

static uint64_t
now_us(void)
{
	return clock_us(CLOCK_MONOTONIC);
}

/* It never falls, as a queue's time: a clock that is set back makes no task
 * early. */
static uint64_t
wall_us(void)
{
	static uint64_t most;
	uint64_t us = clock_us(CLOCK_REALTIME);

	if (us > most)
		most = us;
	return most;
}

static void
lateness_add(struct lateness *to, uint64_t us)
{
	int power;
	double part = frexp((double)us + 1, &power); /* 0.5 to 1 */

	to->slots[64 * power + (int)((part - 0.5) * 128)]++;
	to->count++;
	if (us > to->most)
		to->most = us;
}

static uint64_t
lateness_at(const struct lateness *of, double share)
{
	uint64_t left = (uint64_t)((double)of->count * share);
	size_t i = 0;

	if (of->count == 0)
		return 0;
	while (of->slots[i] <= left)
		left -= of->slots[i++];
	return (uint64_t)ldexp(0.5 + (double)(i % 64) / 128, (int)(i / 64));
}

static void
connect_client(struct client *client)
{
	uint64_t end_us = now_us() + CONNECT_SECONDS * SEC_US;

	do {
		client->connection =
		    engine_connect(address, (unsigned)(client - clients));
		if (client->connection != NULL)
			return;
		(void)usleep(10000);
	} while (given.kill && now_us() < end_us);
	fail(address, "not reached");
}

/* The tasks that a worker holds may be executed again, because of this. */
static void
excuse(struct client *client, uint8_t cause)
{
	for (; client->count > 0; client->count--)
		seen[client->tasks[client->count - 1].number] |= cause;
}

static void
reconnect(struct client *client, uint8_t cause)
{
	engine_close(client->connection);
	if (client->adds)
		client->again |= client->busy;
	else
		excuse(client, cause);
	client->busy = false;
	connect_client(client);
}

static void
lost(struct client *client)
{
	if (!given.kill)
		fail(address, "the connection is lost");
	reconnect(client, CUT);
	kill_us = now_us();
}

static bool
near_kill(void)
{
	return kill_us > 0 &&
	    now_us() < kill_us + KILL_US + given.visibility * 1000;
}

static bool
adds_over(void)
{
	if (given.count > 0)
		return numbered >= given.count;
	return now_us() >= start_us + given.seconds * SEC_US;
}

/* How many tasks the rates ask for until now. */
static uint64_t
wanted(void)
{
	double s = (double)(now_us() - start_us) / 1e6;
	double period = fmin((double)given.seconds, PERIOD_SECONDS);
	double tenth = period / 10, full = floor(s / period) * tenth;
	double part = fmod(s, period) - 4.5 * tenth;
	double peak =
	    given.peak > given.rate ? (double)(given.peak - given.rate) : 0;

	full += fmax(0, fmin(part, tenth));
	return (uint64_t)(s * (double)given.rate + full * peak);
}

/* How many tasks may be added now. */
static uint64_t
add_room(void)
{
	uint64_t outstanding = numbered - (total.executed - total.again);
	uint64_t room = given.batch, most;

	if (outstanding >= given.window || numbered + given.batch > TASKS_MAX)
		return 0;
	if (given.count > 0 && given.count - numbered < room)
		room = given.count - numbered;
	if (given.rate == 0)
		return room;
	most = wanted();
	most = most > numbered ? most - numbered : 0;
	if (most > total.behind && !near_kill())
		total.behind = most;
	return most < room ? most : room;
}

static void
start_add(struct client *client)
{
	uint64_t due_ms = wall_us() / 1000 + given.delay;
	uint64_t i, room;

	if (!client->again) {
		room = adds_over() ? 0 : add_room();
		if (room == 0) {
			client->wake_us = now_us() + 1000;
			return;
		}
		for (i = 0; i < room; i++) {
			client->tasks[i].number = numbered++;
			client->tasks[i].due_ms = due_ms;
			if (given.spread > 0)
				client->tasks[i].due_ms +=
				    (uint64_t)random() % given.spread;
		}
		client->count = room;
	}
	client->busy = true;
	client->again = false;
	if (!engine_send_add(client->connection, client->tasks, client->count))
		lost(client);
}

static void
start_take(struct client *client)
{
	client->busy = true;
	if (!engine_send_take(client->connection, client->tasks, client->count,
		(unsigned)given.limit))
		lost(client);
}

static void
execute_again(uint8_t *task)
{
	total.again++;
	if (*task & CUT)
		total.cut++;
	else if (*task & DROPPED)
		total.dropped++;
	else if (*task & LATE)
		total.late++;
	else
		total.unexplained++;
	*task &= (uint8_t) ~(CUT | DROPPED | LATE);
}

static void
execute(const struct task *task)
{
	uint64_t us = wall_us(), due_us = task->due_ms * 1000;

	if (task->number >= numbered)
		fail("executed", "a task that was not added");
	total.executed++;
	total.early += us < due_us;
	lateness_add(&lateness[near_kill()], us > due_us ? us - due_us : 0);
	if (seen[task->number] & EXECUTIONS)
		execute_again(&seen[task->number]);
	if ((seen[task->number] & EXECUTIONS) < EXECUTIONS)
		seen[task->number]++;
	last_us = now_us();
}

static void
receive(struct client *client)
{
	struct task taken[BATCH_MAX];
	size_t i, refused = 0, count = 0;
	int came = engine_receive(client->connection, taken, &count, &refused);

	if (came < 0)
		lost(client);
	if (came != 1)
		return;
	client->busy = false;
	if (client->adds) {
		for (i = 0; i < client->count; i++)
			seen[client->tasks[i].number] |= ACKNOWLEDGED;
		total.added += client->count;
		adds_end_us = now_us();
		return;
	}
	if (refused > 0 &&
	    now_us() > client->taken_us + given.visibility * 1000)
		excuse(client, LATE);
	memcpy(client->tasks, taken, count * sizeof(*taken));
	client->count = count;
	client->taken_us = now_us();
	for (i = 0; i < count; i++)
		execute(&taken[i]);
	if (count == 0 && engine_pause_ms > 0)
		client->wake_us = now_us() + engine_pause_ms * 1000;
}

/* Starts what can be started. Returns whether anything is still to come. */
static bool
start_clients(void)
{
	uint64_t now = now_us();
	bool adding = false, over = adds_over(), held = false;
	size_t i;

	if (given.drop > 0 && !over && now > drop_us + given.drop * 1000) {
		drop_us = kill_us = now;
		reconnect(&clients[(size_t)random() % client_count], DROPPED);
	}
	for (i = 0; i < client_count; i++) {
		struct client *client = &clients[i];

		if (!client->busy && client->wake_us <= now) {
			if (client->adds)
				start_add(client);
			else
				start_take(client);
		}
		adding |= client->adds && (client->busy || client->again);
		held |= !client->adds && client->count > 0;
	}
	if (!over || adding)
		return true;
	if (given.workers == 0)
		return false;
	if (total.executed - total.again >= total.added)
		return held;
	return now < last_us + 2 * given.visibility * 1000 ||
	    now < adds_end_us +
		(given.delay + given.spread + 2 * given.visibility) * 1000;
}

static void
run(void)
{
	struct pollfd polls[CLIENTS_MAX];
	size_t i;

	start_us = drop_us = now_us();
	while (start_clients()) {
		int wait_ms = 100;

		for (i = 0; i < client_count; i++) {
			polls[i].fd = engine_fd(clients[i].connection);
			polls[i].events = clients[i].busy ? POLLIN : 0;
			if (!clients[i].busy)
				wait_ms = 1;
		}
		if (poll(polls, client_count, wait_ms) <= 0)
			continue;
		for (i = 0; i < client_count; i++) {
			if (clients[i].busy && polls[i].revents != 0)
				receive(&clients[i]);
		}
	}
}

static void
report_lateness(const char *when, const struct lateness *of)
{
	printf(" %sp50 %" PRIu64 " %sp99 %" PRIu64 " %smax %" PRIu64, when,
	    lateness_at(of, 0.5), when, lateness_at(of, 0.99), when, of->most);
}

static void
report(double cpu_s)
{
	uint64_t i, missing = 0;

	for (i = 0; i < numbered && given.workers > 0; i++)
		missing +=
		    (seen[i] & (ACKNOWLEDGED | EXECUTIONS)) == ACKNOWLEDGED;
	printf("added %" PRIu64 " add_s %.6f executed %" PRIu64
	       " life_s %.6f cpu_s %.6f behind %" PRIu64,
	    total.added, (double)(adds_end_us - start_us) / 1e6, total.executed,
	    last_us > start_us ? (double)(last_us - start_us) / 1e6 : 0.0,
	    cpu_s, total.behind);
	report_lateness("", &lateness[0]);
	report_lateness("kill_", &lateness[1]);
	printf(" lost %" PRIu64 " early %" PRIu64 " again %" PRIu64
	       " cut %" PRIu64 " dropped %" PRIu64 " late %" PRIu64
	       " unexplained %" PRIu64 "\n",
	    missing, total.early, total.again, total.cut, total.dropped,
	    total.late, total.unexplained);
}

static void
parse(const char *word)
{
	const char *equals = strchr(word, '=');
	size_t i;

	for (i = 0; equals != NULL && i < sizeof(names) / sizeof(*names); i++) {
		if (strlen(names[i].name) == (size_t)(equals - word) &&
		    memcmp(names[i].name, word, (size_t)(equals - word)) == 0) {
			*names[i].value = strtoull(equals + 1, NULL, 10);
			return;
		}
	}
	fail(word, "not known");
}

static double
cpu_seconds(void)
{
	return (double)clock_us(CLOCK_PROCESS_CPUTIME_ID) / 1e6;
}

int
main(int argc, char **argv)
{
	double cpu_s;
	size_t i;

	if (argc < 2)
		fail("usage", "load ADDRESS [NAME=VALUE ...]");
	address = argv[1];
	for (i = 2; i < (size_t)argc; i++)
		parse(argv[i]);
	client_count = given.adders + given.workers;
	if (client_count > CLIENTS_MAX || given.batch > BATCH_MAX ||
	    given.limit > BATCH_MAX)
		fail("argument", "too much");
	engine_visibility_ms = (unsigned)given.visibility;
	seen = mmap(NULL, TASKS_MAX, PROT_READ | PROT_WRITE,
	    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (seen == MAP_FAILED)
		fail("mmap", "no memory");
	for (i = 0; i < client_count; i++) {
		clients[i].adds = i < given.adders;
		connect_client(&clients[i]);
	}
	printf("ready\n");
	(void)fflush(stdout);
	cpu_s = cpu_seconds();
	run();
	report(cpu_seconds() - cpu_s);
	return 0;
}
