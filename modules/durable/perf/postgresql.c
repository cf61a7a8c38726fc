/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SERVER is a connection string of libpq, and a comma and the name of a table
 * that is made. An add is one INSERT of the batch. A worker's thread deletes up
 * to 16 rows that are due and that nobody has locked, executes them and
 * commits; if there are none, it looks again after 5 ms.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "modules/durable/perf/queue.h"

const unsigned queue_unit_ms = 1;

enum {
	TAKEN_MAX = 16,
	EMPTY_US = 5000
};

struct producer {
	PGconn *connection;
	bool prepared;
	char ids[BATCH_MAX * 24], dues[BATCH_MAX * 24],
	    payloads[BATCH_MAX * 80];
};

static char address[256], table[64];
static atomic_bool stopping;
static pthread_t thread[64];
static unsigned threads_count;

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

	if (sscanf(server, "%255[^,],%63s", address, table) != 2)
		FAIL("not a server: %s", server);
	connection = connect_to();
	(void)snprintf(text, sizeof(text),
	    "CREATE TABLE IF NOT EXISTS %s (id bigint PRIMARY KEY, due bigint "
	    "NOT NULL, payload text NOT NULL); "
	    "CREATE INDEX IF NOT EXISTS %s_due ON %s (due)",
	    table, table, table);
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

static int
take(PGconn *connection)
{
	PGresult *result;
	int taken, i;

	PQclear(command(connection, "BEGIN"));
	result = PQexecPrepared(connection, "take", 0, NULL, NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		FAIL("%s", PQerrorMessage(connection));
	taken = PQntuples(result);
	for (i = 0; i < taken; i++)
		task_executed(PQgetvalue(result, i, 0));
	PQclear(result);
	PQclear(command(connection, "COMMIT"));
	return taken;
}

static void *
work(void *argument)
{
	PGconn *connection = connect_to();
	char text[512];
	PGresult *result;

	(void)snprintf(text, sizeof(text),
	    "DELETE FROM %s WHERE id = ANY (ARRAY (SELECT id FROM %s WHERE "
	    "due <= floor(extract(epoch FROM now()) * 1000)::bigint "
	    "ORDER BY due LIMIT %d FOR UPDATE SKIP LOCKED)) RETURNING payload",
	    table, table, TAKEN_MAX);
	result = PQprepare(connection, "take", text, 0, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		FAIL("%s", PQerrorMessage(connection));
	PQclear(result);
	while (!atomic_load(&stopping))
		if (take(connection) == 0)
			(void)usleep(EMPTY_US);
	PQfinish(connection);
	return argument;
}

void
work_start(unsigned threads)
{
	for (; threads_count < threads; threads_count++)
		if (pthread_create(&thread[threads_count], NULL, work, NULL) !=
		    0)
			FAIL("no thread");
}

void
work_stop(void)
{
	atomic_store(&stopping, true);
	while (threads_count > 0)
		(void)pthread_join(thread[--threads_count], NULL);
}
