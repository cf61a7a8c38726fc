/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of PostgreSQL. An add is one INSERT of the batch. A worker deletes
 * rows that are due and that nobody has locked, executes them and commits,
 * which it sends with the next DELETE in pipeline mode. With nothing due it
 * polls again after 1 ms. All statements are prepared; synchronous_commit on.
 *
 * Who would call it unfair: those of hwt_durable, as there are no states,
 * attempts, results or ended tasks, and one commit is for a whole batch. It is
 * the least that a queue of one's own needs, so that it shows the cost of the
 * promises.
 */
#include "modules/durable/perf/engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libpq-fe.h>

unsigned engine_pause_ms = 1;
unsigned engine_visibility_ms = 30000;

struct connection {
	PGconn *pg;
	bool takes, open; /* a transaction, of what is taken */
	char ids[BATCH_MAX * 24], dues[BATCH_MAX * 24];
	char payloads[BATCH_MAX * (PAYLOAD_SIZE + 4)];
};

static const char *const statements[][2] = {
    {"add",
	"INSERT INTO perf SELECT * FROM unnest($1::bigint[], $2::bigint[], "
	"$3::text[]) ON CONFLICT DO NOTHING"},
    {"take",
	"DELETE FROM perf WHERE id = ANY (ARRAY (SELECT id FROM perf WHERE "
	"due <= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint "
	"ORDER BY due LIMIT $1::int FOR UPDATE SKIP LOCKED)) "
	"RETURNING payload"},
    {"begin", "BEGIN"},
    {"commit", "COMMIT"},
};

/* ADDRESS is a connection string of libpq. */
struct connection *
engine_connect(const char *address, unsigned index)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	bool right;
	size_t i;

	(void)index;
	if (connection == NULL)
		fail("connection", "no memory");
	connection->pg = PQconnectdb(address);
	right = PQstatus(connection->pg) == CONNECTION_OK;
	for (i = 0; right && i < 4; i++) {
		PGresult *result = PQprepare(connection->pg, statements[i][0],
		    statements[i][1], 0, NULL);

		right = PQresultStatus(result) == PGRES_COMMAND_OK;
		PQclear(result);
	}
	if (right && PQenterPipelineMode(connection->pg) == 1)
		return connection;
	engine_close(connection);
	return NULL;
}

void
engine_close(struct connection *connection)
{
	PQfinish(connection->pg);
	free(connection);
}

int
engine_fd(const struct connection *connection)
{
	return PQsocket(connection->pg);
}

static bool
send_statement(
    struct connection *connection, const char *name, const char *const *values)
{
	int count = strcmp(name, "add") == 0 ? 3 : values != NULL;

	return PQsendQueryPrepared(
		   connection->pg, name, count, values, NULL, NULL, 0) == 1;
}

bool
engine_send_add(
    struct connection *connection, const struct task *tasks, size_t count)
{
	const char *values[3] = {
	    connection->ids, connection->dues, connection->payloads};
	char *id = connection->ids, *due = connection->dues;
	char *text = connection->payloads;
	char payload[PAYLOAD_SIZE + 1];
	size_t i;

	for (i = 0; i < count; i++) {
		char before = i == 0 ? '{' : ',';

		payload_write(payload, &tasks[i]);
		id += sprintf(id, "%c%" PRIu64, before, tasks[i].number);
		due += sprintf(due, "%c%" PRIu64, before, tasks[i].due_ms);
		text += sprintf(text, "%c\"%s\"", before, payload);
	}
	(void)strcpy(id, "}");
	(void)strcpy(due, "}");
	(void)strcpy(text, "}");
	connection->takes = false;
	return send_statement(connection, "add", values) &&
	    PQpipelineSync(connection->pg) == 1;
}

bool
engine_send_take(struct connection *connection, const struct task *done,
    size_t count, unsigned limit)
{
	char text[16];
	const char *values[1] = {text};

	(void)done;
	(void)count;
	(void)snprintf(text, sizeof(text), "%u", limit);
	connection->takes = true;
	if (connection->open && !send_statement(connection, "commit", NULL))
		return false;
	connection->open = true;
	return send_statement(connection, "begin", NULL) &&
	    send_statement(connection, "take", values) &&
	    PQpipelineSync(connection->pg) == 1;
}

int
engine_receive(struct connection *connection, struct task *taken, size_t *count,
    size_t *refused)
{
	ExecStatusType status = PGRES_COMMAND_OK;
	PGresult *result;
	int i;

	*refused = 0;
	if (PQconsumeInput(connection->pg) != 1)
		return -1;
	while (status != PGRES_PIPELINE_SYNC) {
		if (PQisBusy(connection->pg))
			return PQstatus(connection->pg) == CONNECTION_OK ? 0
									 : -1;
		result = PQgetResult(connection->pg);
		if (result == NULL)
			continue;
		status = PQresultStatus(result);
		if (status == PGRES_TUPLES_OK) {
			*count = (size_t)PQntuples(result);
			for (i = 0; i < PQntuples(result); i++)
				payload_read(
				    PQgetvalue(result, i, 0), &taken[i]);
		} else if (status != PGRES_COMMAND_OK &&
		    status != PGRES_PIPELINE_SYNC) {
			if (PQstatus(connection->pg) == CONNECTION_OK &&
			    strstr(PQresultErrorMessage(result), "ERROR"))
				fail(
				    "PostgreSQL", PQresultErrorMessage(result));
			PQclear(result);
			return -1;
		}
		PQclear(result);
	}
	return 1;
}
