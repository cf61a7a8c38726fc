/* SPDX-License-Identifier: Apache-2.0 */
/* The server on libuv: a uv_poll_t for each descriptor. A closed handle is
 * freed when the loop says so; until then its callback does not come. */
#include <uv.h>

#include "server.h"

struct watch {
	uv_poll_t poll;
	void (*ready)(void *arg);
	void *arg;
};

static void
on_readable(uv_poll_t *poll, int status, int events)
{
	struct watch *watch = poll->data;

	(void)status;
	(void)events;
	watch->ready(watch->arg);
}

static void *
loop_watch(int fd, void (*ready)(void *arg), void *arg)
{
	struct watch *watch = malloc(sizeof(*watch));

	must(watch != NULL);
	watch->ready = ready;
	watch->arg = arg;
	must(uv_poll_init(uv_default_loop(), &watch->poll, fd) == 0);
	watch->poll.data = watch;
	must(uv_poll_start(&watch->poll, UV_READABLE, on_readable) == 0);
	return watch;
}

static void
on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void
loop_unwatch(void *watch)
{
	uv_close((uv_handle_t *)watch, on_closed);
}

static void
loop_end(void)
{
	uv_stop(uv_default_loop());
}

static void
loop_run(void)
{
	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}

int
main(void)
{
	int status = serve();

	uv_run(uv_default_loop(), UV_RUN_DEFAULT);
	must(uv_loop_close(uv_default_loop()) == 0);
	return status;
}
