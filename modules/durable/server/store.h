/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The embedded store: a log of rows, in one folder that one process owns. Rows
 * are appended, and removed from the oldest on, between store_begin and
 * store_commit. One thread at a time.
 */
#ifndef HWT_DURABLE_STORE_H
#define HWT_DURABLE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

enum store_error {
	STORE_OK,
	STORE_FULL, /* no space; nothing of the transaction has happened */
	/* Damage, or an error of the disk: what was committed last is not
	 * known. The process must end; the next start finds it out. */
	STORE_BROKEN
};

/*
 * Opens the folder, and makes it if there is none.
 * -EBUSY   another process has it open
 * -EPROTO  it belongs to another program, or to another version
 * -EILSEQ  it is damaged, or no store
 * -EIO     it cannot be read or written
 * -ENOMEM, or what the system says; why is a sentence
 */
int store_open(struct store **store, const char *folder, char why[200]);
void store_close(struct store *store);

/* durable: store_commit is to wait until power may be lost. */
enum store_error store_begin(struct store *store, bool durable);
/* *key: of the row; later ones have greater ones, the first one 1. */
enum store_error store_append(
    struct store *store, const void *bytes, size_t length, uint64_t *key);
/* NULL: there is none, or it is damaged. Valid until it is removed. */
const void *store_oldest(struct store *store, uint64_t *key, size_t *length);
/* The one that store_oldest has returned. */
enum store_error store_remove_oldest(struct store *store);
/* On an error, the transaction is rolled back. */
enum store_error store_commit(struct store *store);
void store_roll_back(struct store *store);

/* Visits all rows from the oldest on, up to the first visit that returns false.
 * -EILSEQ: a row is damaged, or a visit returned false. */
int store_scan(struct store *store,
    bool (*visit)(void *ctx, uint64_t key, const void *bytes, size_t length),
    void *ctx);

/* Writes a whole copy to a file that is not there yet. */
bool store_backup(struct store *store, const char *path, size_t length);

/* After STORE_FULL: gives the reserve back, so that what ends tasks can still
 * be committed. store_refill takes it again; false: still no space. */
void store_use_reserve(struct store *store);
bool store_refill(struct store *store);

/* What the disk or the store has said last. */
const char *store_message(const struct store *store);

#endif
