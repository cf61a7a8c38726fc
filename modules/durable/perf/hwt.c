/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of hwtd, or of Redis with hwt.so. A finish carries the next take; a
 * take that has nothing to end blocks in the server. All fsynced.
 */
#include "modules/durable/perf/resp.h"

#include <stdio.h>

#define KEY "{perf:tasks}"

const unsigned engine_pause_ms = 0;
unsigned engine_visibility_ms = 30000;

bool
engine_send_add(
    struct connection *connection, const struct task *tasks, size_t count)
{
	size_t i;

	resp_begin(connection, "HWT.ADD");
	resp_text(connection, KEY);
	resp_text(connection, "RESULT");
	resp_text(connection, "60000");
	resp_text(connection, "EACH");
	resp_text(connection, "TASKS");
	for (i = 0; i < count; i++) {
		resp_number(connection, tasks[i].number);
		resp_number(connection, tasks[i].due_ms);
		resp_payload(connection, &tasks[i]);
	}
	connection->takes = false;
	return resp_send(connection);
}

bool
engine_send_take(struct connection *connection, const struct task *done,
    size_t count, unsigned limit)
{
	char worker[16];
	size_t i;

	(void)snprintf(worker, sizeof(worker), "w%u", connection->index);
	connection->done_count = count;
	connection->takes = true;
	resp_begin(connection, count > 0 ? "HWT.FINISH" : "HWT.TAKE");
	resp_text(connection, KEY);
	if (count > 0) {
		resp_text(connection, "DONE");
		resp_text(connection, "TASKS");
	}
	for (i = 0; i < count; i++) {
		resp_number(connection, done[i].number);
		resp_number(connection, done[i].fence);
	}
	if (count > 0)
		resp_text(connection, "TAKE");
	resp_text(connection, worker);
	resp_number(connection, limit);
	resp_number(connection, engine_visibility_ms);
	if (count == 0) {
		resp_text(connection, "BLOCK");
		resp_text(connection, "1000");
	}
	return resp_send(connection);
}

/* A task is [id, fence, attempt, attempts, due, payload]. */
int
engine_receive(struct connection *connection, struct task *taken, size_t *count,
    size_t *refused)
{
	redisReply *reply, *tasks;
	int came = resp_receive(connection, &reply);
	size_t i;

	*count = *refused = 0;
	if (came != 1)
		return came;
	if (connection->takes) {
		for (i = 0; i < connection->done_count; i++)
			*refused += reply->element[i]->integer == 0;
		tasks = i > 0 ? reply->element[i] : reply;
		for (; *count < tasks->elements; (*count)++) {
			redisReply **task = tasks->element[*count]->element;

			payload_read(task[5]->str, &taken[*count]);
			taken[*count].fence = (uint64_t)task[1]->integer;
		}
	}
	freeReplyObject(reply);
	return 1;
}
