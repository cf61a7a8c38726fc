/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection: idle_stamp when lighttpd notes a time, idle_settle
 * when it has run the connection's states, idle_end when it is closed. The
 * timeout is due at the earliest time at which any limit may be reached. Its
 * task lets lighttpd's own check decide, which closes the connection or not;
 * then idle_settle chooses the next time.
 *
 * All of it runs in lighttpd's one thread. The timer is made for the first
 * connection: in each worker process, after the fork.
 */
#include <stdio.h>
#include <stdlib.h>

enum {
	IDLE_TICK_NS = 10000000
};

static struct hwt *idle_timer;
/* The connection that is being looked at; NULL when it was closed meanwhile. */
static connection *idle_looked_at;

static void
idle_must(int result, const char *what)
{
	if (result == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, hwt_strerror(result));
	exit(EXIT_FAILURE);
}

static uint64_t
idle_now_ns(void)
{
	struct hwt_options options = {
	    .tick_ns = IDLE_TICK_NS, .flags = HWT_MANUAL};
	uint64_t now_ns = 0;

	if (idle_timer == NULL)
		idle_must(hwt_create(&idle_timer, &options), "idle timer");
	idle_must(hwt_now(idle_timer, &now_ns), "idle clock");
	return now_ns;
}

static unix_time64_t *
idle_field(connection *con, enum idle_stamp which)
{
	switch (which) {
	case IDLE_READ:
		return &con->read_idle_ts;
	case IDLE_WRITE:
		return &con->write_request_ts;
	default:
		return &con->close_timeout_ts;
	}
}

/* A time may have been set to the past. */
static void
idle_note(connection *con, enum idle_stamp which, uint64_t now_ns)
{
	struct idle_times *idle = &con->idle;
	unix_time64_t at = *idle_field(con, which);
	uint64_t ago_ns = 0;

	if (at != 0 && at < log_monotonic_secs)
		ago_ns = HWT_SEC((uint64_t)(log_monotonic_secs - at));
	idle->noted[which] = at;
	idle->at_ns[which] = now_ns > ago_ns ? now_ns - ago_ns : 0;
}

void
idle_stamp(connection *con, enum idle_stamp which)
{
	idle_note(con, which, idle_now_ns());
}

/* What others have set, of plugins and at shutdown. */
static void
idle_note_others(connection *con, uint64_t now_ns)
{
	enum idle_stamp i;

	for (i = 0; i < IDLE_STAMPS; i++)
		if (con->idle.noted[i] != *idle_field(con, i))
			idle_note(con, i, now_ns);
}

static void
idle_consider(
    uint64_t *least_ns, uint64_t now_ns, uint64_t at_ns, uint64_t limit_s)
{
	uint64_t due_ns = at_ns + HWT_SEC(limit_s);

	/* In the state of now it closes nothing; in another one it may. As
	 * lighttpd does, it is looked at each second. */
	if (due_ns <= now_ns)
		due_ns = now_ns + HWT_SEC(1);
	if (due_ns < *least_ns)
		*least_ns = due_ns;
}

static uint64_t
idle_due_ns(const connection *con, uint64_t now_ns)
{
	const request_st *request = &con->request;
	const struct idle_times *idle = &con->idle;
	uint64_t least_ns = idle->again_ns ? idle->again_ns : UINT64_MAX;

	idle_consider(&least_ns, now_ns, idle->at_ns[IDLE_READ],
	    request->conf.max_read_idle);
	if (con->request_count > 1 || con->h2)
		idle_consider(&least_ns, now_ns, idle->at_ns[IDLE_READ],
		    (uint64_t)con->keep_alive_idle);
	if (request->state == CON_STATE_WRITE && con->write_request_ts != 0)
		idle_consider(&least_ns, now_ns, idle->at_ns[IDLE_WRITE],
		    request->conf.max_write_idle);
	if (request->state == CON_STATE_CLOSE)
		idle_consider(&least_ns, now_ns, idle->at_ns[IDLE_CLOSE],
		    HTTP_LINGER_TIMEOUT);
	return least_ns;
}

/* lighttpd's check: its times are whole seconds, and it closes when more than
 * the limit has passed. So a time is shown to it as many whole seconds back as
 * have passed, and one more. */
static void
idle_check(connection *con, uint64_t now_ns)
{
	unix_time64_t shown[IDLE_STAMPS], *field;
	enum idle_stamp i;

	for (i = 0; i < IDLE_STAMPS; i++) {
		field = idle_field(con, i);
		shown[i] = *field;
		if (*field != 0)
			shown[i] = log_monotonic_secs - 1 -
			    (unix_time64_t)((now_ns - con->idle.at_ns[i]) /
				HWT_SEC(1));
		*field = shown[i];
	}
	idle_looked_at = con;
	connection_check_timeout(con, log_monotonic_secs);
	if (idle_looked_at == NULL)
		return;
	idle_looked_at = NULL;
	for (i = 0; i < IDLE_STAMPS; i++)
		if (*idle_field(con, i) == shown[i])
			*idle_field(con, i) = con->idle.noted[i];
}

static void
idle_task(hwt_timeout timeout, void *arg)
{
	connection *con = arg;
	uint64_t now_ns = idle_now_ns();

	(void)timeout;
	con->idle.timeout = (hwt_timeout){0};
	con->idle.again_ns = 0;
	idle_note_others(con, now_ns);
	idle_check(con, now_ns);
	if (con->fd >= 0)
		idle_settle(con);
}

void
idle_settle(connection *con)
{
	struct idle_times *idle = &con->idle;
	uint64_t now_ns, due_ns;
	int result;

	if (con->fd < 0 || con == idle_looked_at)
		return;
	now_ns = idle_now_ns();
	idle_note_others(con, now_ns);
	/* When lighttpd counts the next second, by its coarse clock. */
	if (idle->again_ns == 0 &&
	    (con->bytes_written_cur_second != 0 || con->traffic_limit_reached))
		idle->again_ns =
		    (now_ns / HWT_SEC(1) + 1) * HWT_SEC(1) + IDLE_TICK_NS;
	due_ns = idle_due_ns(con, now_ns);
	if (idle->timeout.id != 0 && due_ns == idle->due_ns)
		return;
	idle->due_ns = due_ns;
	if (idle->timeout.id != 0)
		result = hwt_reschedule_at(idle_timer, idle->timeout, due_ns);
	else
		result = hwt_new_timeout_at(
		    idle_timer, NULL, &idle->timeout, idle_task, con, due_ns);
	if (result != 0)
		fprintf(stderr, "fd %d has no timeout: %s\n", con->fd,
		    hwt_strerror(result));
}

/* In idle_task, too: then there is nothing to cancel. */
void
idle_end(connection *con)
{
	int result = 0;

	if (con->idle.timeout.id != 0)
		result = hwt_cancel(idle_timer, con->idle.timeout);
	(void)result;
	con->idle = (struct idle_times){0};
	if (idle_looked_at == con)
		idle_looked_at = NULL;
}

int
idle_wait_ms(int max_ms)
{
	uint64_t wait_ns = UINT64_MAX;

	if (idle_timer != NULL)
		idle_must(hwt_next_wakeup(idle_timer, &wait_ns), "idle wait");
	if (wait_ns >= HWT_MS((uint64_t)max_ms))
		return max_ms;
	return (int)((wait_ns + HWT_MS(1) - 1) / HWT_MS(1));
}

void
idle_turn(void)
{
	if (idle_timer != NULL)
		idle_must(hwt_advance(idle_timer, NULL), "idle turn");
}
