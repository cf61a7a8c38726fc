/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SERVER is a connection string of libpq, a comma, the name of a table that is
 * made, and another comma and "UNLOGGED" if nothing is to be kept. An add is
 * one INSERT of the batch. A worker's thread deletes up to 256 rows that are
 * due and that nobody has locked, executes them and commits, which it sends
 * with the next DELETE, in pipeline mode: one message for each 256. If there
 * are none, it polls again after 5 ms. All statements are prepared.
 *
 * Why 256: of 16, 64 and 256, three rounds in turn on a busy machine, it had
 * the most lives a second (medians 16,768, 28,899 and 29,454) and caught up
 * with 21,980, 75,915 and 107,814 tasks a second; how late tasks were did not
 * differ.
 *
 * Who would call it unfair: not its users. There is nothing in the row but id,
 * due time and payload, so that no partial index and no fill factor would be of
 * use; LISTEN tells of what is added, not of what is due. Those of hwt_durable
 * would: there are no states, attempts, results or ended tasks, one commit is
 * for up to 256 executions, and what a worker that has lost its connection
 * still executes, another one executes as well. That is what a queue of one's
 * own needs at least, and what its promises cost should be seen.
 */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "modules/durable/perf/threads.h"

const unsigned queue_unit_ms = 1;

enum {
	TAKEN_MAX = 256,
	EMPTY_US = 5000
};

struct producer {
	PGconn *connection;
	bool prepared;
	char ids[BATCH_MAX * 24], dues[BATCH_MAX * 24],
	    payloads[BATCH_MAX * 80];
};

static char address[256], table[64], kind[16];

/* What is wrong with it ends us. */
static PGresult *
command(PGconn *connection, const char *text)
{
	PGresult *result = PQexec(connection, text);
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		FAIL("%s: %s", text, PQerrorMessage(connection));
	return result;
}

static PGconn *
connect_to(void)
{
	PGconn *connection = PQconnectdb(address);

	if (PQstatus(connection) != CONNECTION_OK)
		FAIL("%s", PQerrorMessage(connection));
	return connection;
}

void
queue_open(const char *server)
{
	char text[512];
	PGconn *connection;

	if (sscanf(server, "%255[^,],%63[^,],%15s", address, table, kind) < 2)
		FAIL("not a server: %s", server);
	connection = connect_to();
	(void)snprintf(text, sizeof(text),
	    "CREATE %s TABLE IF NOT EXISTS %s (id bigint PRIMARY KEY, "
	    "due bigint NOT NULL, payload text NOT NULL); "
	    "CREATE INDEX IF NOT EXISTS %s_due ON %s (due)",
	    kind, table, table, table);
	PQclear(command(connection, text));
	PQfinish(connection);
}

void
queue_close(void)
{
}

static bool
prepare(struct producer *producer)
{
	char text[512];
	PGresult *result;

	(void)snprintf(text, sizeof(text),
	    "INSERT INTO %s SELECT * FROM unnest($1::bigint[], $2::bigint[], "
	    "$3::text[]) ON CONFLICT DO NOTHING",
	    table);
	result = PQprepare(producer->connection, "add", text, 3, NULL);
	producer->prepared = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return producer->prepared;
}

struct producer *
producer_open(void)
{
	struct producer *producer = malloc(sizeof(*producer));

	if (producer == NULL)
		FAIL("no memory");
	producer->connection = connect_to();
	if (!prepare(producer))
		FAIL("%s", PQerrorMessage(producer->connection));
	return producer;
}

void
producer_close(struct producer *producer)
{
	PQfinish(producer->connection);
	free(producer);
}

/* As arrays, as text. */
static void
write_arrays(struct producer *producer, size_t count, const struct task *tasks)
{
	char *ids = producer->ids, *dues = producer->dues;
	char *payloads = producer->payloads;
	size_t i;

	for (i = 0; i < count; i++) {
		ids += sprintf(
		    ids, "%c%" PRIu64, i == 0 ? '{' : ',', tasks[i].number);
		dues += sprintf(
		    dues, "%c%" PRIu64, i == 0 ? '{' : ',', tasks[i].due_ms);
		payloads += sprintf(
		    payloads, "%c\"%s\"", i == 0 ? '{' : ',', tasks[i].payload);
	}
	(void)strcpy(ids, "}");
	(void)strcpy(dues, "}");
	(void)strcpy(payloads, "}");
}

bool
producer_add(struct producer *producer, size_t count, const struct task *tasks)
{
	const char *values[3] = {
	    producer->ids, producer->dues, producer->payloads};
	PGresult *result;
	bool done;

	if (PQstatus(producer->connection) != CONNECTION_OK) {
		producer->prepared = false;
		PQreset(producer->connection);
	}
	if (PQstatus(producer->connection) != CONNECTION_OK ||
	    (!producer->prepared && !prepare(producer)))
		return false;
	write_arrays(producer, count, tasks);
	result = PQexecPrepared(
	    producer->connection, "add", 3, values, NULL, NULL, 0);
	done = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	if (!done && PQstatus(producer->connection) == CONNECTION_OK)
		FAIL("%s", PQerrorMessage(producer->connection));
	return done;
}

/* The statements are sent, then answered until the pipeline is in step. Returns
 * the answer that has rows; NULL: none has. */
static PGresult *
exchange(PGconn *connection, const char *const *names, unsigned count)
{
	PGresult *result, *rows = NULL;
	ExecStatusType status = PGRES_COMMAND_OK;
	bool sent = true;
	unsigned i;

	for (i = 0; i < count; i++)
		sent = sent &&
		    PQsendQueryPrepared(
			connection, names[i], 0, NULL, NULL, NULL, 0) == 1;
	if (!sent || PQpipelineSync(connection) != 1)
		FAIL("%s", PQerrorMessage(connection));
	while (status != PGRES_PIPELINE_SYNC) {
		result = PQgetResult(connection);
		/* NULL is the end of one statement. */
		status =
		    result != NULL ? PQresultStatus(result) : PGRES_COMMAND_OK;
		if (status == PGRES_TUPLES_OK) {
			rows = result;
			continue;
		}
		if (status != PGRES_COMMAND_OK && status != PGRES_PIPELINE_SYNC)
			FAIL("%s", PQerrorMessage(connection));
		PQclear(result);
	}
	return rows;
}

static void
work_prepare(PGconn *connection)
{
	char text[512];
	const char *const statements[][2] = {
	    {"begin", "BEGIN"}, {"commit", "COMMIT"}, {"take", text}};
	PGresult *result;
	size_t i;

	(void)snprintf(text, sizeof(text),
	    "DELETE FROM %s WHERE id = ANY (ARRAY (SELECT id FROM %s WHERE "
	    "due <= floor(extract(epoch FROM now()) * 1000)::bigint "
	    "ORDER BY due LIMIT %d FOR UPDATE SKIP LOCKED)) RETURNING payload",
	    table, table, TAKEN_MAX);
	for (i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		result = PQprepare(
		    connection, statements[i][0], statements[i][1], 0, NULL);
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			FAIL("%s", PQerrorMessage(connection));
		PQclear(result);
	}
	if (PQenterPipelineMode(connection) != 1)
		FAIL("no pipeline mode");
}

static void *
work(void *argument)
{
	static const char *const names[] = {"commit", "begin", "take"};
	PGconn *connection = connect_to();
	unsigned skipped = 1;
	PGresult *result;
	int taken, i;

	work_prepare(connection);
	for (; !atomic_load(&stopping); skipped = 0) {
		result = exchange(connection, names + skipped, 3 - skipped);
		taken = PQntuples(result);
		for (i = 0; i < taken; i++)
			task_executed(PQgetvalue(result, i, 0));
		PQclear(result);
		if (taken == 0)
			(void)usleep(EMPTY_US);
	}
	if (skipped == 0)
		PQclear(exchange(connection, names, 1));
	PQfinish(connection);
	return argument;
}
