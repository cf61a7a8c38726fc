/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory: it grows with the most operations that were pending at the same time,
 * whatever keys they had, and is released when they have ended.
 */
#include "modules/purgatory/test/spec/purgatory.h"

SUITE(memory);

#define PENDING 2000u

static struct yard yard;

static uint64_t
memory_bytes(void)
{
	return yard_stats(&yard).memory_bytes;
}

/* All are pending under one key, so that all belong to one shard; then under
 * the next. */
static void
fill_and_empty(struct operation *operation, uint64_t key)
{
	unsigned i;

	for (i = 0; i < PENDING; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation[i], KEY(key), HWT_SEC(1)), 0);
	}
	assert_u64(cancel_key(&yard, KEY(key)), PENDING);
}

YardTest(memory, what_one_shard_gave_back_serves_the_others)
{
	static struct operation operation[PENDING];
	uint64_t bytes, key;

	fill_and_empty(operation, 0);
	bytes = memory_bytes();
	for (key = 1; key < 300; key++)
		fill_and_empty(operation, key);
	/* 7 free ones in each shard, and the slab that was begun. */
	cr_assert(memory_bytes() < bytes + (64 * 7 + 512) * 240);
}

YardTest(memory, few_operations_on_many_keys_take_little)
{
	static struct operation operation[200];
	uint64_t bytes;
	unsigned i;

	bytes = memory_bytes();
	for (i = 0; i < 200; i++) {
		operation[i].yard = &yard;
		assert_rc(watch_key(&operation[i], KEY(i), HWT_SEC(1)), 0);
	}
	cr_assert(memory_bytes() < bytes + (200 + 64 * 7 + 512) * 240);
}

/* An operation on so many keys that is cancelled. */
#define KEYS_MAX 100000u

static void
watch_and_cancel(unsigned keys)
{
	static struct hwt_key key[KEYS_MAX];
	struct operation operation = {.yard = &yard};
	unsigned i;

	for (i = 0; i < keys; i++)
		key[i] = KEY(i);
	assert_rc(watch_keys(&operation, key, keys, HWT_SEC(1)), 0);
	assert_u64(cancel_key(&yard, KEY(keys / 2)), 1);
	assert_stats(&yard, 0, 0, 0);
}

YardTestWith(memory, the_table_of_many_keys_goes_with_them, .shards = 1)
{
	uint64_t bytes;

	watch_and_cancel(1000);
	bytes = memory_bytes();
	watch_and_cancel(KEYS_MAX);
	assert_u64(memory_bytes(), bytes);
}

/* Watches, with each allocation of that failing in turn, until none does. */
static void
watch_with_faults(struct operation *operation, uint64_t pending)
{
	uint64_t nth = 0;
	bool failed;
	int rc;

	do {
		*operation = (struct operation){.yard = &yard};
		fault_arm(FAULT_HEAP, ++nth);
		rc = watch_key(operation, KEY(1), HWT_NEVER);
		failed = fault_disarm() >= nth;
		/* Without memory a table does not grow, and that is all. */
		if (rc == 0)
			break;
		assert_rc(rc, -ENOMEM);
		assert_stats(&yard, pending, pending, pending > 0);
	} while (failed);
	assert_rc(rc, 0);
}

YardTestWith(memory, ENOMEM_of_each_slab_is_undone, .shards = 1)
{
	static struct operation operation[PENDING];
	unsigned i;

	for (i = 0; i < PENDING; i++)
		watch_with_faults(&operation[i], i);
	assert_u64(cancel_key(&yard, KEY(1)), PENDING);
}

#define KEYS_PLACED 3000u

/* What follows from the random bytes: the generation of the first handle, and
 * where keys lie, as the size of the tables tells. */
struct drawn {
	uint64_t handle, memory_bytes;
};

static struct drawn
draw(const uint64_t *random)
{
	static struct operation operation[KEYS_PLACED];
	struct drawn drawn;
	unsigned i;

	fixture_open(&yard.fixture, NULL);
	random_give(random, 4 * sizeof(*random));
	assert_rc(
	    hwt_purgatory_create(&yard.purgatory, yard.fixture.timer, NULL), 0);
	random_give(NULL, 0);
	for (i = 0; i < KEYS_PLACED; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation[i], KEY(i), HWT_SEC(1)), 0);
	}
	drawn.handle = operation[0].handle.id;
	drawn.memory_bytes = memory_bytes();
	yard_close(&yard);
	return drawn;
}

/* No random word makes handles and places keys as well: so who sees handles
 * learns nothing with which he could choose keys that meet. */
Test(memory, handles_say_nothing_about_where_keys_lie)
{
	uint64_t random[4] = {0x35, 0x53, 0x5335, 0x3553};
	struct drawn first = draw(random);
	struct drawn other;
	unsigned handles = 0, places = 0, i;

	for (i = 0; i < 4; i++) {
		random[i] ^= 0x100;
		other = draw(random);
		random[i] ^= 0x100;
		cr_assert((other.handle == first.handle) !=
		    (other.memory_bytes == first.memory_bytes));
		handles += other.handle != first.handle;
		places += other.memory_bytes != first.memory_bytes;
	}
	assert_u64(handles, 2);
	assert_u64(places, 2);
}

/* Releasing. */

#define MANY 100000u
/* What is kept: 4 slabs, and what shards have taken. */
#define KEPT ((4 + 64) * 22 * 4096)

static _Atomic uint64_t ended;

static void
count_end(hwt_operation operation, void *arg, enum hwt_outcome outcome)
{
	(void)operation, (void)arg, (void)outcome;
	ended++;
}

static void
watch_many(hwt_operation *handle, unsigned count)
{
	struct hwt_key key = KEY(0);
	struct hwt_operation_spec spec = {.done = count_end,
	    .keys = &key,
	    .key_count = 1,
	    .delay_ns = HWT_NEVER};

	for (; key.id < count; key.id++)
		assert_rc(
		    hwt_purgatory_watch(yard.purgatory, &handle[key.id], &spec),
		    0);
}

/* In an order that has nothing to do with that of the records. */
static void
cancel_many(unsigned count)
{
	uint64_t i;

	for (i = 0; i < count; i++)
		assert_u64(cancel_key(&yard, KEY(i * 7919 % count)), 1);
	assert_stats(&yard, 0, 0, 0);
}

YardTest(memory, is_released_when_operations_have_ended)
{
	static hwt_operation handle[MANY];
	uint64_t before, most;

	watch_many(handle, 1000);
	cancel_many(1000);
	before = memory_bytes();
	watch_many(handle, MANY);
	most = memory_bytes();
	cancel_many(MANY);
	cr_assert(most > before + MANY * 168);
	cr_assert(memory_bytes() < before + KEPT, "%u of %u kB",
	    (unsigned)(memory_bytes() / 1024), (unsigned)(most / 1024));
}

static void
cancel_each(const hwt_operation *handle, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++)
		assert_rc(hwt_operation_cancel(yard.purgatory, handle[i]), 0);
}

/* Uses up the keys that the shard has allocated, as those of a value need one
 * each. Returns the first id that got none. */
static uint64_t
take_keys(uint64_t id)
{
	struct hwt_key key = KEY(id);
	const struct hwt_operation_spec spec = {.done = count_end,
	    .keys = &key,
	    .key_count = 1,
	    .at_least = 1,
	    .delay_ns = HWT_NEVER};

	while (hwt_purgatory_watch(yard.purgatory, NULL, &spec) == 0)
		key.id++;
	return key.id;
}

/* A link that is to be chained as groups are joined gets no key. */
YardTestWith(memory, ENOMEM_while_a_table_shrinks_loses_nothing, .shards = 1)
{
	static hwt_operation handle[MANY];
	uint64_t bytes, id, end = MANY;
	unsigned i;

	watch_and_cancel(KEYS_MAX);
	bytes = memory_bytes();
	watch_many(handle, MANY);
	fault_arm(FAULT_MEMORY, FAULT_ALWAYS);
	for (i = 0; i < MANY; i++) {
		end = take_keys(end);
		cancel_each(&handle[i], 1);
	}
	cr_assert(fault_disarm() > 0);
	for (id = MANY; id < end; id++)
		assert_u64(cancel_key(&yard, KEY(id)), 1);
	assert_stats(&yard, 0, 0, 0);
	watch_and_cancel(KEYS_MAX);
	cr_assert(memory_bytes() < bytes + KEPT);
}

/* One in 16 stays, so that no slab is released. */
YardTest(memory, free_records_between_others_are_used_again)
{
	static hwt_operation first[PENDING], others[PENDING];
	uint64_t bytes;
	unsigned i;

	watch_many(first, PENDING);
	for (i = 0; i < PENDING; i += 16)
		cancel_each(&first[i + 1], 15);
	bytes = memory_bytes();
	for (i = 0; i < 10; i++) {
		watch_many(others, PENDING / 2);
		cancel_each(others, PENDING / 2);
	}
	cr_assert(memory_bytes() < bytes + (64 * 7 + 512) * 240);
}

static uint64_t
resident_bytes(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	unsigned long kb = 0;
	char line[200];

	cr_assert(file != NULL);
	while (kb == 0 && fgets(line, sizeof(line), file) != NULL)
		(void)sscanf(line, "Rss: %lu kB", &kb);
	(void)fclose(file);
	cr_assert(kb > 0);
	return kb * 1024;
}

/* Of operations that all have the same key, or each its own. */
static void
let_many_end(uint64_t keys)
{
	uint64_t before, most, after;
	uint64_t i;

	if (WITH_ASAN)
		return; /* its own memory grows as well */
	before = resident_bytes();
	for (i = 0; i < MANY; i++) {
		const struct hwt_key key = KEY(i % keys);

		assert_rc(hwt_purgatory_watch(yard.purgatory, NULL,
			      &(struct hwt_operation_spec){.done = count_end,
				  .keys = &key,
				  .key_count = 1,
				  .delay_ns = HWT_NEVER}),
		    0);
	}
	most = resident_bytes();
	cr_assert(most > before + MANY * 168);
	for (i = 0; i < keys; i++)
		assert_u64(
		    cancel_key(&yard, KEY(i * 7919 % keys)), MANY / keys);
	after = resident_bytes();
	cr_assert(after < before + (most - before) / 10, "%u kB, %u before",
	    (unsigned)(after / 1024), (unsigned)(before / 1024));
}

YardTest(memory, the_system_has_it_then)
{
	let_many_end(1);
}

YardTest(memory, the_system_has_that_of_keys_then)
{
	let_many_end(MANY);
}

/* A key with one operation takes no memory of its own; one with two does. */
static void
watch_twice(struct operation operation[2], uint64_t key)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		operation[i] = (struct operation){.yard = &yard};
		assert_rc(watch_key(&operation[i], KEY(key), HWT_NEVER), 0);
	}
}

/* One key more or less than what a piece of memory has. */
YardTestWith(memory, a_key_that_comes_and_goes_needs_no_system, .shards = 1)
{
	static struct operation operations[2000][2];
	static struct operation more[2];
	uint64_t bytes = 0;
	unsigned i, k;

	for (i = 0; i < 2000; i++) {
		watch_twice(operations[i], i);
		for (k = 0; k < 3; k++) {
			watch_twice(more, 5000);
			if (k > 0)
				assert_u64(memory_bytes(), bytes);
			bytes = memory_bytes();
			assert_u64(cancel_key(&yard, KEY(5000)), 2);
			assert_u64(memory_bytes(), bytes);
		}
	}
	assert_rc(hwt_purgatory_shutdown(yard.purgatory), 0);
}

YardTest(memory, no_handle_becomes_valid_again_with_what_was_released)
{
	static hwt_operation first[MANY], second[MANY];
	unsigned i, round;

	watch_many(first, MANY);
	cancel_many(MANY);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < MANY; i++)
			assert_rc(
			    hwt_operation_cancel(yard.purgatory, first[i]),
			    -ENOENT);
		watch_many(second, MANY);
	}
}
