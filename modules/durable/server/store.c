/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store on SQLite: one table of rows, in a database with a write-ahead log
 * and synchronous=FULL, so that a commit is one fsync of the log.
 *
 * Each row has a checksum of its key and bytes, since SQLite has none of pages.
 */
#include "modules/durable/server/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define STORE_VERSION 0x68777401 /* "hwt", 1 */
#define RESERVE_BYTES ((off_t)16 << 20)
#define LOG_PAGES 4096 /* after which the log is copied into the database */

enum statement {
	BEGIN,
	APPEND,
	OLDEST,
	REMOVE,
	COMMIT,
	ROLL_BACK,
	SCAN,
	STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [APPEND] = "INSERT INTO rows VALUES (?1, ?2, ?3)",
    [OLDEST] = "SELECT key, sum, bytes FROM rows ORDER BY key LIMIT 1",
    [REMOVE] = "DELETE FROM rows WHERE key = ?1",
    [COMMIT] = "COMMIT",
    [ROLL_BACK] = "ROLLBACK",
    [SCAN] = "SELECT key, sum, bytes FROM rows ORDER BY key",
};

struct store {
	sqlite3 *database;
	sqlite3_stmt *statement[STATEMENTS];
	int folder; /* locked */
	uint64_t last; /* key that was given */
	bool durable; /* the setting of synchronous */
	char message[160];
};

static uint32_t
checksum(uint64_t key, const unsigned char *bytes, size_t length)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325) ^ key;

	for (; length > 0; length--)
		sum = (sum ^ *bytes++) * UINT64_C(0x100000001b3);
	return (uint32_t)(sum ^ sum >> 32);
}

static enum store_error
error_of(struct store *store, int result)
{
	if (result == SQLITE_OK || result == SQLITE_DONE ||
	    result == SQLITE_ROW)
		return STORE_OK;
	(void)snprintf(store->message, sizeof(store->message), "%s",
	    result == SQLITE_ERROR ? sqlite3_errmsg(store->database)
				   : sqlite3_errstr(result));
	return (result & 0xff) == SQLITE_FULL ? STORE_FULL : STORE_BROKEN;
}

static enum store_error
step(struct store *store, enum statement which)
{
	/* An error of it is told by the reset. */
	(void)sqlite3_step(store->statement[which]);
	return error_of(store, sqlite3_reset(store->statement[which]));
}

/* Whether the database is of this version, or SQLITE_MISMATCH; a new one
 * becomes so. */
static int
claim(struct store *store)
{
	sqlite3_stmt *statement = NULL;
	int version, result;

	(void)sqlite3_prepare_v2(
	    store->database, "PRAGMA user_version", -1, &statement, NULL);
	(void)sqlite3_step(statement);
	version = sqlite3_column_int(statement, 0);
	result = sqlite3_finalize(statement);
	if (result == SQLITE_OK && version == 0)
		return sqlite3_exec(store->database,
		    "BEGIN; PRAGMA user_version = 0x68777401;"
		    "CREATE TABLE rows (key INTEGER PRIMARY KEY, sum INTEGER,"
		    "bytes BLOB); COMMIT",
		    NULL, NULL, NULL);
	return result != SQLITE_OK || version == STORE_VERSION
	    ? result
	    : SQLITE_MISMATCH;
}

static int
prepare(struct store *store)
{
	int i, result = SQLITE_OK;

	for (i = 0; i < STATEMENTS && result == SQLITE_OK; i++)
		result = sqlite3_prepare_v3(store->database, texts[i], -1,
		    SQLITE_PREPARE_PERSISTENT, &store->statement[i], NULL);
	return result;
}

/* After a commit, as SQLite's own does, which hides an error: what the commit
 * then answers is an error of the disk, and ends the process. A full disk is
 * none: the log goes on to grow until there is space. */
static int
copy_log(void *ctx, sqlite3 *database, const char *name, int pages)
{
	int result = SQLITE_OK;

	(void)ctx;
	if (pages >= LOG_PAGES)
		result = sqlite3_wal_checkpoint_v2(
		    database, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	return result == SQLITE_FULL || result == SQLITE_BUSY ? SQLITE_OK
							      : result;
}

static int
open_database(struct store *store, const char *folder)
{
	static const char settings[] =
	    "PRAGMA page_size = 4096; PRAGMA locking_mode = EXCLUSIVE;"
	    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
	    "PRAGMA cache_size = -16384";
	char path[4096];
	int result;

	if (snprintf(path, sizeof(path), "%s/tasks.db", folder) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	result = sqlite3_open_v2(path, &store->database,
	    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
	    NULL);
	if (result == SQLITE_OK)
		result =
		    sqlite3_exec(store->database, settings, NULL, NULL, NULL);
	if (result == SQLITE_OK)
		result = claim(store);
	if (result == SQLITE_MISMATCH)
		return -EPROTO;
	if (result == SQLITE_OK)
		result = prepare(store);
	(void)error_of(store, result);
	(void)sqlite3_wal_hook(store->database, copy_log, NULL);
	store->durable = true;
	return result == SQLITE_OK                                ? 0
	    : result == SQLITE_NOTADB || result == SQLITE_CORRUPT ? -EILSEQ
								  : -EIO;
}

static int
open_folder(const char *folder)
{
	int fd, error, naps = 50;

	if (mkdir(folder, 0700) != 0 && errno != EEXIST)
		return -errno;
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* One that was killed may not have ended yet. */
	while ((error = flock(fd, LOCK_EX | LOCK_NB)) != 0 &&
	    errno == EWOULDBLOCK && naps-- > 0)
		(void)usleep(20000);
	if (error == 0)
		return fd;
	error = errno == EWOULDBLOCK ? -EBUSY : -errno;
	(void)close(fd);
	return error;
}

int
store_open(struct store **opened, const char *folder, char why[200])
{
	struct store *store = calloc(1, sizeof(*store));
	int error;

	if (store == NULL)
		return -ENOMEM;
	error = store->folder = open_folder(folder);
	if (error >= 0)
		error = open_database(store, folder);
	if (error == 0) {
		(void)store_refill(store);
		*opened = store;
		return 0;
	}
	(void)snprintf(why, 200, "%.90s: %s%.90s", folder,
	    error == -EBUSY        ? "another process has it open"
		: error == -EPROTO ? "it is of another program or version"
		: error == -EILSEQ ? "it is damaged: "
		: error == -EIO    ? "error: "
				   : strerror(-error),
	    store->message);
	store_close(store);
	return error;
}

void
store_close(struct store *store)
{
	int i;

	for (i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(store->statement[i]);
	(void)sqlite3_close(store->database);
	if (store->folder >= 0)
		(void)close(store->folder);
	free(store);
}

enum store_error
store_begin(struct store *store, bool durable)
{
	const char *text = durable ? "PRAGMA synchronous = FULL"
				   : "PRAGMA synchronous = NORMAL";

	if (durable != store->durable &&
	    sqlite3_exec(store->database, text, NULL, NULL, NULL) != SQLITE_OK)
		return STORE_BROKEN;
	store->durable = durable;
	return step(store, BEGIN);
}

enum store_error
store_append(
    struct store *store, const void *bytes, size_t length, uint64_t *key)
{
	sqlite3_stmt *append = store->statement[APPEND];

	*key = ++store->last;
	(void)sqlite3_bind_int64(append, 1, (sqlite3_int64)*key);
	(void)sqlite3_bind_int64(append, 2, checksum(*key, bytes, length));
	(void)sqlite3_bind_blob64(append, 3, bytes, length, SQLITE_STATIC);
	return step(store, APPEND);
}

/* The bytes of the row that was found; NULL: damaged. */
static const void *
row_bytes(sqlite3_stmt *statement, uint64_t *key, size_t *length)
{
	const void *bytes = sqlite3_column_blob(statement, 2);

	*key = (uint64_t)sqlite3_column_int64(statement, 0);
	*length = (size_t)sqlite3_column_bytes(statement, 2);
	return bytes != NULL &&
		sqlite3_column_int64(statement, 1) ==
		    checksum(*key, bytes, *length)
	    ? bytes
	    : NULL;
}

const void *
store_oldest(struct store *store, uint64_t *key, size_t *length)
{
	sqlite3_stmt *oldest = store->statement[OLDEST];

	return sqlite3_step(oldest) == SQLITE_ROW
	    ? row_bytes(oldest, key, length)
	    : NULL;
}

enum store_error
store_remove_oldest(struct store *store)
{
	sqlite3_stmt *oldest = store->statement[OLDEST];

	(void)sqlite3_bind_int64(
	    store->statement[REMOVE], 1, sqlite3_column_int64(oldest, 0));
	(void)sqlite3_reset(oldest);
	return step(store, REMOVE);
}

enum store_error
store_commit(struct store *store)
{
	enum store_error error = step(store, COMMIT);

	if (error == STORE_FULL)
		store_roll_back(store);
	return error;
}

/* SQLite may have rolled back by itself. */
void
store_roll_back(struct store *store)
{
	(void)sqlite3_reset(store->statement[OLDEST]);
	if (!sqlite3_get_autocommit(store->database))
		(void)step(store, ROLL_BACK);
}

int
store_scan(struct store *store,
    bool (*visit)(void *ctx, uint64_t key, const void *bytes, size_t length),
    void *ctx)
{
	sqlite3_stmt *scan = store->statement[SCAN];
	const void *bytes;
	uint64_t key;
	size_t length;
	int result, error = 0;

	while (error == 0 && (result = sqlite3_step(scan)) == SQLITE_ROW) {
		bytes = row_bytes(scan, &key, &length);
		store->last = key;
		if (bytes == NULL || !visit(ctx, key, bytes, length))
			error = -EILSEQ;
	}
	if (error == 0 && result != SQLITE_DONE)
		error = -EILSEQ;
	(void)sqlite3_reset(scan);
	return error;
}

bool
store_backup(struct store *store, const char *path, size_t length)
{
	sqlite3_stmt *statement;

	(void)sqlite3_prepare_v2(
	    store->database, "VACUUM INTO ?1", -1, &statement, NULL);
	(void)sqlite3_bind_text(statement, 1, path, (int)length, SQLITE_STATIC);
	(void)sqlite3_step(statement);
	return error_of(store, sqlite3_finalize(statement)) == STORE_OK;
}

void
store_use_reserve(struct store *store)
{
	(void)unlinkat(store->folder, "reserve", 0);
}

bool
store_refill(struct store *store)
{
	struct statvfs space;
	struct stat file;
	int fd, error;

	if (fstatat(store->folder, "reserve", &file, 0) == 0 &&
	    file.st_size == RESERVE_BYTES)
		return true;
	if (fstatvfs(store->folder, &space) != 0 ||
	    (off_t)(space.f_bavail * space.f_frsize) < 2 * RESERVE_BYTES)
		return false;
	fd = openat(
	    store->folder, "reserve", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return false;
	error = posix_fallocate(fd, 0, RESERVE_BYTES);
	(void)close(fd);
	if (error != 0)
		store_use_reserve(store);
	return error == 0;
}

const char *
store_message(const struct store *store)
{
	return store->message;
}
