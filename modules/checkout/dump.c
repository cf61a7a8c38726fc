/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt_checkout_dump and hwt_store_dump: who has what and who waits for what,
 * for someone who looks for a fault in a program.
 *
 * Everything else goes on meanwhile. A lock is held while a few requests, or
 * the entries of a few buckets, are copied; none while the copy is printed, as
 * names take the dynamic linker's lock, and a file can block.
 *
 * BOOKMARKS. Between two copies, two requests of the dump stand in the ring:
 * where the next copy begins, and where the ring ended when the dump began, so
 * that it ends, too. They have no state and no objects, so that whoever walks
 * the ring leaves them alone.
 *
 * WHAT IS LOOKED AT. A request in a ring is not its caller's again before the
 * ring's lock has been taken. Its objects are there as long as it is listed
 * without an outcome: a retirement marks or ends what has the object under the
 * same lock before the object's memory becomes the user's, and an entry of a
 * store lives until no request wants it. What is ENDED, or has an outcome, is
 * left out, and so is an item whose member was retired: its group may be gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "observe/page.h"
#include "observe/symbol.h"
#include "store.h"

/* Requests of one copy, objects of each of them that are shown. */
#define COPIED 16u
#define SHOWN 8u
/* Of a store: buckets that are looked at for one copy. */
#define BUCKETS 64u

/* What was copied of a request and its objects. */
struct seen_object {
	const void *address, *granted;
	uint64_t order, word;
	bool read;
};

struct seen {
	const void *address, *at;
	bool out; /* granted; otherwise it waits */
	uint64_t word, since_ns;
	hwt_granted *granted;
	void *arg;
	uint32_t count, flags, shown;
	struct seen_object object[SHOWN];
};

static void
copy_object(struct seen_object *seen, struct request *request, uint32_t i)
{
	struct object *object = object_at(request, i);

	*seen = (struct seen_object){
	    .address = object,
	    .order = object->order,
	    .word = a64_load_acquire(&object->word),
	    .read = reads_at(request, i),
	};
	if (seen->word & GROUP && !(seen->word & WAITERS) &&
	    group_has_slotted((struct object_group *)object))
		seen->word &= ~IN_USE;
}

/* False: it is a bookmark, or about to leave the list. */
static bool
copy_request(struct seen *seen, struct request *request, bool out)
{
	uint64_t word = a64_load_acquire(&request->word);
	uint32_t i;

	if (is_bookmark(request) ||
	    (!out && (word & OUTCOME_MASK || word_state(word) == STATE_ENDED)))
		return false;
	*seen = (struct seen){
	    .address = request,
	    .out = out,
	    .word = word,
	    .since_ns = out ? request->since_ns : *request_since(request),
	    .granted = request->granted,
	    .arg = request->arg,
	    .count = request->count,
	    .flags = request->flags,
	};
	if (!out && word_state(word) == STATE_WAITING)
		seen->at = aptr_load_acquire(&request->at);
	for (i = 0; i < request->count && seen->shown < SHOWN; i++) {
		const void *granted = NULL;

		if (out && request->flags & HAS_ITEMS) {
			granted = *object_granted(request, i);
			if (granted == NULL) {
				seen->count--;
				continue;
			}
		}
		copy_object(&seen->object[seen->shown], request, i);
		seen->object[seen->shown++].granted = granted;
	}
	return true;
}

struct bookmarks {
	struct request next, end;
};

static void
bookmarks_add(struct request **ring, struct bookmarks *marks)
{
	memset(marks, 0, sizeof(*marks));
	ring_add(ring, &marks->next);
	*ring = &marks->next;
	ring_add(ring, &marks->end);
}

/* Behind that one, which is before the end. */
static void
bookmark_move(struct request **ring, struct request *mark, struct request *to)
{
	ring_remove(ring, mark);
	mark->list_next = to->list_next;
	mark->list_previous = to;
	to->list_next->list_previous = mark;
	to->list_next = mark;
}

/* With the lock held. Returns how many were copied; *over: that was all, and
 * the bookmarks are gone. */
static uint32_t
copy_ring(struct seen *seen, struct request **ring, struct bookmarks *marks,
    bool out, bool *over)
{
	struct request *request = &marks->next;
	uint32_t looks, count = 0;

	for (looks = 0; looks < COPIED && request->list_next != &marks->end;
	     looks++) {
		request = request->list_next;
		if (copy_request(&seen[count], request, out))
			count++;
	}
	*over = request->list_next == &marks->end;
	if (*over) {
		ring_remove(ring, &marks->next);
		ring_remove(ring, &marks->end);
	} else {
		bookmark_move(ring, &marks->next, request);
	}
	return count;
}

/* Printing. */

static void
print_use(struct page *page, uint64_t word)
{
	uint64_t holder = word & HOLDER_MASK;

	if (word & RETIRED)
		page_print(page, ": retired\n");
	else if (!(word & IN_USE))
		page_print(page, ": free\n");
	else if (word & GROUP)
		page_print(page, ": none is free\n");
	else if (word & SHARED)
		page_print(
		    page, ": %" PRIu64 " read it\n", holder / READER_ONE);
	else if (holder == 0)
		page_print(page, ": on its way to another request\n");
	else
		page_print(page, ": request %#" PRIx64 " has it\n", holder);
}

static void
print_object(struct page *page, const struct seen_object *seen, bool waits)
{
	bool any = seen->word & GROUP;

	page_print(page, "    %s %p order %" PRIu64 "%s",
	    any ? "any of group" : "object", seen->address, seen->order,
	    seen->read ? " to read" : "");
	if (waits)
		print_use(page, seen->word);
	else if (any && seen->granted != NULL)
		page_print(page, ": object %p\n", seen->granted);
	else
		page_print(page, "\n");
}

static void
print_place(struct page *page, const struct hwt_checkout *checkout,
    const struct seen *seen)
{
	enum state state = word_state(seen->word);

	if (state == STATE_TRYING || state == STATE_WOKEN)
		page_print(page, " being tried");
	else if (seen->at == &checkout->gate)
		page_print(page, " for the end of the pause");
	else if (state == STATE_WAITING && !(seen->flags & PAUSES_ALL))
		page_print(page, " for %p", seen->at);
}

static void
print_request(struct page *page, const struct hwt_checkout *checkout,
    const struct seen *seen, uint64_t now_ns)
{
	char name[SYMBOL_BYTES];
	uint32_t i;

	page_print(page, "  request %p %s %" PRId64 " ns", seen->address,
	    seen->out ? "out" : "waits", (int64_t)(now_ns - seen->since_ns));
	if (!seen->out)
		print_place(page, checkout, seen);
	if (seen->word & BLOCKING || seen->granted == NULL)
		page_print(page, " by a thread\n");
	else
		page_print(page, " granted %s arg %p\n",
		    symbol_name((const void *)(uintptr_t)seen->granted, name,
			sizeof(name)),
		    seen->arg);
	if (seen->flags & PAUSES_ALL)
		page_print(page, "    pauses all\n");
	else if (seen->flags & PAUSES)
		page_print(page, "    pauses these\n");
	for (i = 0; i < seen->shown; i++)
		print_object(page, &seen->object[i], !seen->out);
	if (seen->count > seen->shown)
		page_print(
		    page, "    and %u more\n", seen->count - seen->shown);
}

/* The requests of a shard that are granted, or that wait. */
static void
print_ring(struct page *page, const struct hwt_checkout *checkout,
    struct checkout_shard *shard, struct request **ring)
{
	bool out = ring == &shard->granted, over;
	struct seen seen[COPIED];
	struct bookmarks marks;
	uint64_t now_ns;
	uint32_t count, i;

	checkout_shard_lock(shard);
	over = *ring == NULL;
	if (!over)
		bookmarks_add(ring, &marks);
	checkout_shard_unlock(shard);
	while (!over) {
		checkout_shard_lock(shard);
		count = copy_ring(seen, ring, &marks, out, &over);
		checkout_shard_unlock(shard);
		now_ns = checkout_now(checkout);
		for (i = 0; i < count; i++)
			print_request(page, checkout, &seen[i], now_ns);
	}
}

static const char *
name_of_gate(const struct hwt_checkout *checkout)
{
	uint64_t word = a64_load_acquire(&checkout->gate.word);

	if (word & RETIRED)
		return "shut down";
	return word & IN_USE ? "in a pause, or about to be" : "open";
}

static void
print_checkout(struct page *page, const struct hwt_checkout *checkout,
    const struct hwt_checkout_stats *stats)
{
	uint32_t i;

	page_print(page,
	    "hwt checkout %p \"%s\": %s, %" PRIu64 " out, %" PRIu64
	    " waiting, longest %" PRIu64 " ns, %" PRIu64 " in executors\n",
	    (const void *)checkout, checkout->name, name_of_gate(checkout),
	    stats->out, stats->waiting, stats->longest_wait_ns,
	    a64_load_relaxed(&checkout->handed));
	if (checkout->lists_grants)
		page_print(page, "granted:\n");
	for (i = 0; i < checkout->shard_count && checkout->lists_grants; i++)
		print_ring(page, checkout, &checkout->shards[i],
		    &checkout->shards[i].granted);
	page_print(page, "waiting:\n");
	for (i = 0; i < checkout->shard_count; i++)
		print_ring(page, checkout, &checkout->shards[i],
		    &checkout->shards[i].list);
}

int
hwt_checkout_dump(const struct hwt_checkout *checkout, FILE *file)
{
	struct page page = {.file = file};
	struct hwt_checkout_stats stats;
	int error = hwt_checkout_read_stats(checkout, &stats);

	if (error != 0)
		return error;
	if (file == NULL)
		return -EINVAL;
	print_checkout(&page, checkout, &stats);
	return page_end(&page);
}

/* Stores. */

struct seen_entry {
	const void *address;
	uint64_t since_ns, word;
	uint32_t wants;
	int error;
	enum entry_state state;
	bool handed;
	uint8_t size;
	unsigned char key[HWT_STORE_KEY_MAX];
};

static void
copy_entry(struct seen_entry *seen, struct store_entry *entry)
{
	*seen = (struct seen_entry){
	    .address = &entry->object,
	    .since_ns = entry->since_ns,
	    .word = a64_load_acquire(&entry->object.word),
	    .wants = entry->wants,
	    .error = entry->state == ENTRY_FAILED ? entry->error : 0,
	    .state = (enum entry_state)entry->state,
	    .handed = entry->handed,
	    .size = entry->size,
	};
	memcpy(seen->key, entry->key, entry->size);
}

/* With the lock held: from *bucket on, where the next copy begins then. A
 * bucket's entries are few, as their hashes are keyed; those that do not fit
 * are left out. */
static uint32_t
copy_buckets(
    struct seen_entry *seen, const struct store_shard *shard, uint32_t *bucket)
{
	uint32_t end = *bucket + BUCKETS, count = 0;
	struct store_entry *entry;

	for (; *bucket < end && *bucket < shard->buckets && count < COPIED / 2;
	     ++*bucket) {
		entry = shard->bucket[*bucket];
		for (; entry != NULL && count < COPIED; entry = entry->chain) {
			if (entry->wants > 0 || entry->state != ENTRY_LOADED)
				copy_entry(&seen[count++], entry);
		}
	}
	return count;
}

static void
print_key(struct page *page, const unsigned char *key, uint8_t size)
{
	uint8_t i;

	for (i = 0; i < size; i++) {
		if (key[i] < 0x20 || key[i] > 0x7e)
			page_print(page, "\\x%02x", key[i]);
		else
			page_print(page, "%s%c",
			    key[i] == '"' || key[i] == '\\' ? "\\" : "",
			    key[i]);
	}
}

static void
print_entry(struct page *page, const struct seen_entry *seen, int64_t passed_ns)
{
	page_print(page, "  object %p key \"", seen->address);
	print_key(page, seen->key, seen->size);
	page_print(page, "\" wanted by %u",
	    seen->state == ENTRY_LOADED || seen->state == ENTRY_FAILED
		? seen->wants
		: seen->wants - 1);
	if (seen->state == ENTRY_LOADED) {
		print_use(page, seen->word);
		return;
	}
	if (seen->state == ENTRY_FAILED)
		page_print(page, ": its load answered %d", seen->error);
	else
		page_print(page, ": being %s%s",
		    seen->state == ENTRY_LOADING ? "loaded" : "unloaded",
		    seen->handed ? ", in the executor" : "");
	page_print(page, ", since %" PRId64 " ns\n", passed_ns);
}

static void
print_shard(
    struct page *page, const struct hwt_store *store, struct store_shard *shard)
{
	struct seen_entry seen[COPIED];
	uint32_t count, i, bucket = 0;
	uint64_t now_ns;
	bool over;

	do {
		store_lock(shard);
		count = copy_buckets(seen, shard, &bucket);
		over = bucket >= shard->buckets;
		store_unlock(shard);
		now_ns = checkout_now(store->checkout);
		for (i = 0; i < count; i++)
			print_entry(page, &seen[i],
			    (int64_t)(now_ns - seen[i].since_ns));
	} while (!over);
}

int
hwt_store_dump(const struct hwt_store *store, FILE *file)
{
	struct page page = {.file = file};
	struct hwt_store_stats stats;
	int error = hwt_store_read_stats(store, &stats);
	uint32_t i;

	if (error != 0)
		return error;
	if (file == NULL)
		return -EINVAL;
	page_print(&page,
	    "hwt store %p \"%s\" of checkout %p: %" PRIu64
	    " loaded, weight %" PRIu64 ", %" PRIu64 " jobs\n",
	    (const void *)store, store->name, (const void *)store->checkout,
	    stats.loaded, stats.weight, stats.jobs);
	for (i = 0; i < store->shard_count; i++)
		print_shard(&page, store, &store->shards[i]);
	return page_end(&page);
}
