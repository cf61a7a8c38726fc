/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of keys.
 *
 * Keys are in chunks: the first one of a shard has a few, and stays; each
 * further one has as many as there are, but no more than 64 KiB take, and is
 * freed when it is empty. While the shard has keys, one of those that are empty
 * is kept, so that a key that comes and goes allocates nothing. All is under
 * the shard's lock.
 */
#include <stdlib.h>

#include "operation.h"

#define CHUNK_KEYS_MIN 8u
#define CHUNK_BYTES_MAX 65536u

static void
chunk_unlist(struct shard *shard, struct key_chunk *chunk)
{
	*(chunk->previous != NULL ? &chunk->previous->next : &shard->chunks) =
	    chunk->next;
	*(chunk->next != NULL ? &chunk->next->previous : &shard->last_chunk) =
	    chunk->previous;
}

/* Behind previous; NULL: at the front. */
static void
chunk_list(
    struct shard *shard, struct key_chunk *chunk, struct key_chunk *previous)
{
	chunk->previous = previous;
	chunk->next = previous != NULL ? previous->next : shard->chunks;
	*(chunk->previous != NULL ? &chunk->previous->next : &shard->chunks) =
	    chunk;
	*(chunk->next != NULL ? &chunk->next->previous : &shard->last_chunk) =
	    chunk;
}

/* Pages are mapped: malloc might keep them. */
static size_t
chunk_size(const struct shard *shard)
{
	size_t bytes = sizeof(struct key_chunk) +
	    (shard->objects + CHUNK_KEYS_MIN) * sizeof(struct key);

	if (bytes >= CHUNK_BYTES_MAX)
		return memory_round(CHUNK_BYTES_MAX);
	return bytes >= memory_round(1) ? memory_round(bytes) : bytes;
}

static bool
chunk_is_mapped(const struct key_chunk *chunk)
{
	return chunk->bytes >= memory_round(1);
}

static struct key_chunk *
chunk_create(struct shard *shard)
{
	size_t bytes = chunk_size(shard);
	struct key_chunk *chunk =
	    bytes >= memory_round(1) ? memory_map(bytes) : malloc(bytes);

	if (chunk == NULL)
		return NULL;
	chunk->bytes = bytes;
	chunk->free = NULL;
	chunk->count =
	    (uint32_t)((bytes - sizeof(*chunk)) / sizeof(struct key));
	chunk->used = 0;
	chunk->begun = 0;
	chunk_list(shard, chunk, NULL);
	shard->memory_bytes += bytes;
	return chunk;
}

static void
chunk_free(struct key_chunk *chunk)
{
	if (chunk_is_mapped(chunk))
		memory_unmap(chunk, chunk->bytes);
	else
		free(chunk);
}

static void
chunk_destroy(struct shard *shard, struct key_chunk *chunk)
{
	chunk_unlist(shard, chunk);
	shard->memory_bytes -= chunk->bytes;
	chunk_free(chunk);
}

struct key *
key_alloc(struct shard *shard)
{
	struct key_chunk *chunk = shard->chunks;
	struct key *key;

	if (chunk == NULL || chunk->used == chunk->count)
		chunk = chunk_create(shard);
	if (chunk == NULL)
		return NULL;
	if (chunk == shard->empty_chunk)
		shard->empty_chunk = NULL;
	key = chunk->free;
	if (key != NULL)
		chunk->free = key->chain;
	else
		key = &chunk->key[chunk->begun++];
	key->chunk = chunk;
	shard->objects++;
	if (++chunk->used == chunk->count && chunk != shard->last_chunk) {
		chunk_unlist(shard, chunk);
		chunk_list(shard, chunk, shard->last_chunk);
	}
	return key;
}

static void
chunk_becomes_empty(struct shard *shard, struct key_chunk *chunk)
{
	struct key_chunk *kept = shard->empty_chunk;
	bool all = shard->objects == 0;

	if (kept != NULL && all) {
		chunk_destroy(shard, kept);
		shard->empty_chunk = NULL;
	}
	if (chunk->count == CHUNK_KEYS_MIN)
		return;
	if (kept != NULL || all)
		chunk_destroy(shard, chunk);
	else
		shard->empty_chunk = chunk;
}

void
key_free(struct shard *shard, struct key *key)
{
	struct key_chunk *chunk = key->chunk;

	key->chain = chunk->free;
	chunk->free = key;
	shard->objects--;
	if (chunk->used-- == chunk->count && chunk != shard->chunks) {
		chunk_unlist(shard, chunk);
		chunk_list(shard, chunk, NULL);
	}
	if (chunk->used == 0)
		chunk_becomes_empty(shard, chunk);
}

void
keys_free(struct shard *shard)
{
	struct key_chunk *chunk, *next;

	for (chunk = shard->chunks; chunk != NULL; chunk = next) {
		next = chunk->next;
		chunk_free(chunk);
	}
}
