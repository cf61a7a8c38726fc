/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SERVER is a port of the loopback. A batch is so many puts in a row whose
 * answers are read afterwards; there are no ids, so that a put without an
 * answer can only be repeated as another task. A worker's thread executes what
 * it has reserved, and deletes it and reserves the next one in one message.
 * Delays are whole seconds.
 *
 * Who would call it unfair: its users, since with -f 0 it writes and syncs each
 * job by itself, and nobody else runs it so: its default is to sync every 50
 * ms. That is asked for here since the others acknowledge nothing that a loss
 * of power may take; its bytes a task are counted without a file. It has no
 * command for a batch of reserves or deletes.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "modules/durable/perf/threads.h"

#define RESERVE "reserve-with-timeout 1\r\n"

const unsigned queue_unit_ms = 1000;

struct producer {
	int file; /* -1: not connected */
	FILE *answers;
	char text[BATCH_MAX * 128];
};

static uint16_t port;

static bool
connect_to(struct producer *connection)
{
	struct sockaddr_in address = {
	    .sin_family = AF_INET, .sin_port = htons(port)};
	int yes = 1;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	connection->file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connection->file < 0 ||
	    setsockopt(connection->file, IPPROTO_TCP, TCP_NODELAY, &yes,
		sizeof(yes)) != 0)
		FAIL("no socket");
	if (connect(connection->file, (struct sockaddr *)&address,
		sizeof(address)) != 0) {
		(void)close(connection->file);
		connection->file = -1;
		return false;
	}
	connection->answers = fdopen(connection->file, "r");
	if (connection->answers == NULL)
		FAIL("no memory");
	return true;
}

static void
disconnect(struct producer *connection)
{
	if (connection->file >= 0)
		(void)fclose(connection->answers);
	connection->file = -1;
}

static bool
say(struct producer *connection, const char *text, size_t length)
{
	ssize_t written;

	while (length > 0) {
		written = send(connection->file, text, length, MSG_NOSIGNAL);
		if (written <= 0)
			return false;
		text += written;
		length -= (size_t)written;
	}
	return true;
}

void
queue_open(const char *server)
{
	port = (uint16_t)strtoul(server, NULL, 10);
}

void
queue_close(void)
{
}

struct producer *
producer_open(void)
{
	struct producer *producer = malloc(sizeof(*producer));

	if (producer == NULL || !connect_to(producer))
		FAIL("not connected");
	return producer;
}

void
producer_close(struct producer *producer)
{
	disconnect(producer);
	free(producer);
}

static bool
put(struct producer *producer, size_t count, const struct task *tasks)
{
	uint64_t now = now_ms(), delay;
	size_t length = 0, i;
	char line[128];

	for (i = 0; i < count; i++) {
		delay = tasks[i].due_ms > now ? tasks[i].due_ms - now : 0;
		length += (size_t)snprintf(producer->text + length,
		    sizeof(producer->text) - length,
		    "put 0 %" PRIu64 " 60 %d\r\n%s\r\n", (delay + 999) / 1000,
		    PAYLOAD, tasks[i].payload);
	}
	if (!say(producer, producer->text, length))
		return false;
	for (i = 0; i < count; i++) {
		if (fgets(line, sizeof(line), producer->answers) == NULL)
			return false;
		if (strncmp(line, "INSERTED ", 9) != 0)
			FAIL("put: %s", line);
	}
	return true;
}

bool
producer_add(struct producer *producer, size_t count, const struct task *tasks)
{
	if (producer->file < 0 && !connect_to(producer))
		return false;
	if (put(producer, count, tasks))
		return true;
	disconnect(producer);
	return false;
}

static void
hear(struct producer *connection, char *line, int size)
{
	if (fgets(line, size, connection->answers) == NULL)
		FAIL("the server has gone");
}

static void *
work(void *argument)
{
	struct producer *connection = producer_open();
	char line[128], payload[PAYLOAD + 3];
	uint64_t id;
	bool taken = false;

	while (taken || !atomic_load(&stopping)) {
		if (!taken) {
			say(connection, RESERVE, strlen(RESERVE));
			hear(connection, line, sizeof(line));
		}
		taken = strncmp(line, "TIMED_OUT", 9) != 0;
		if (!taken)
			continue;
		if (sscanf(line, "RESERVED %" SCNu64, &id) != 1 ||
		    fread(payload, 1, PAYLOAD + 2, connection->answers) !=
			PAYLOAD + 2)
			FAIL("reserve: %s", line);
		payload[PAYLOAD] = 0;
		task_executed(payload);
		taken = !atomic_load(&stopping);
		(void)snprintf(line, sizeof(line), "delete %" PRIu64 "\r\n%s",
		    id, taken ? RESERVE : "");
		say(connection, line, strlen(line));
		hear(connection, line, sizeof(line));
		if (strncmp(line, "DELETED", 7) != 0)
			FAIL("delete: %s", line);
		if (taken)
			hear(connection, line, sizeof(line));
	}
	producer_close(connection);
	return argument;
}
