/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection: idle_touch when it begins and whenever something
 * comes from the client, idle_end when it is closed. slapd's connections are an
 * array whose elements are never freed, and c_mutex guards all of one. So a
 * task locks it, and compares its own handle with the connection's: they differ
 * if the connection was closed, used anew or touched while the task was on its
 * way.
 *
 * Tasks run in the timer's worker, which may wait for c_mutex, as the walk did
 * that was here before. The shared timer is made for the first connection,
 * after slapd has forked.
 */

static void idle_task(hwt_timeout timeout, void *arg);

static void
idle_after(Connection *c, uint64_t delay_ns)
{
	struct hwt *timer;
	int result = hwt_shared(&timer);

	if (result == 0)
		result =
		    hwt_touch(timer, NULL, &c->c_idle, idle_task, c, delay_ns);
	if (result != 0)
		Debug(LDAP_DEBUG_ANY, "conn=%lu has no idle timeout: %s\n",
		    c->c_connid, hwt_strerror(result));
}

static void
idle_task(hwt_timeout timeout, void *arg)
{
	Connection *c = arg;

	ldap_pvt_thread_mutex_lock(&c->c_mutex);
	if (timeout.id != c->c_idle.id) {
		ldap_pvt_thread_mutex_unlock(&c->c_mutex);
		return;
	}
	c->c_idle = (hwt_timeout){0};
	/* A slow operation is not idle. slapd looks at it again as often. */
	if (c->c_n_ops_executing || c->c_n_ops_async) {
		idle_after(c, HWT_SEC((uint64_t)global_idletimeout) / 4);
	} else {
		connection_closing(c, "idletimeout");
		connection_close(c);
	}
	ldap_pvt_thread_mutex_unlock(&c->c_mutex);
}

void
idle_touch(Connection *c)
{
	/* slapd's own connections to others are never idle. */
	if (global_idletimeout > 0 && c->c_conn_state != SLAP_C_CLIENT)
		idle_after(c, HWT_SEC((uint64_t)global_idletimeout));
}

/* In idle_task, too: then there is nothing to cancel. */
void
idle_end(Connection *c)
{
	struct hwt *timer;
	int result = 0;

	if (c->c_idle.id != 0 && hwt_shared(&timer) == 0)
		result = hwt_cancel(timer, c->c_idle);
	/* -ENOENT: its task waits for c_mutex, and will find another handle. */
	(void)result;
	c->c_idle = (hwt_timeout){0};
}

void
idle_stop(void)
{
	int result = hwt_shared_shutdown(NULL);

	(void)result;
}
