/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library as others meet it: what the shared object exports, how it is
 * named and versioned, that it stays mapped, and that the header's numbers are
 * what it says they are.
 */
#include "test/spec/support_promises.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

SUITE(library);

/* All functions of hwt.h: a name that it lacks does not compile, and one that
 * is missing here is an export too many. */
#define FUNCTION(name)                      \
	{                                   \
#name, (void (*)(void))name \
	}

static const struct {
	const char *name;
	void (*address)(void);
} functions[] = {
    FUNCTION(hwt_create),
    FUNCTION(hwt_start),
    FUNCTION(hwt_stop),
    FUNCTION(hwt_stop_within),
    FUNCTION(hwt_unprocessed_next),
    FUNCTION(hwt_destroy),
    FUNCTION(hwt_new_timeout),
    FUNCTION(hwt_new_timeout_on),
    FUNCTION(hwt_new_timeouts),
    FUNCTION(hwt_cancel),
    FUNCTION(hwt_cancel_wait),
    FUNCTION(hwt_reschedule),
    FUNCTION(hwt_remaining),
    FUNCTION(hwt_pending_timeouts),
    FUNCTION(hwt_read_stats),
    FUNCTION(hwt_run),
    FUNCTION(hwt_advance),
    FUNCTION(hwt_next_wakeup),
    FUNCTION(hwt_shared),
    FUNCTION(hwt_shared_shutdown),
    FUNCTION(hwt_pool_create),
    FUNCTION(hwt_pool_executor),
    FUNCTION(hwt_pool_destroy),
    FUNCTION(hwt_mailbox_create),
    FUNCTION(hwt_mailbox_fd),
    FUNCTION(hwt_mailbox_run),
    FUNCTION(hwt_mailbox_executor),
    FUNCTION(hwt_mailbox_destroy),
    FUNCTION(hwt_version),
    FUNCTION(hwt_now),
    FUNCTION(hwt_new_timeout_at),
    FUNCTION(hwt_reschedule_at),
    FUNCTION(hwt_touch),
    FUNCTION(hwt_new_periodic),
    FUNCTION(hwt_state),
    FUNCTION(hwt_strerror),
    FUNCTION(hwt_stats_write),
    FUNCTION(hwt_dump),
};

#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

/* The shared object, mapped as a file. */
struct image {
	const char *bytes;
	size_t size;
	const Elf64_Shdr *sections;
	unsigned section_count;
};

static void
image_open(struct image *image)
{
	const Elf64_Ehdr *header;
	struct stat status;
	char path[4096];
	int fd;

	library_path(path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0, "no %s: make builds it", path);
	cr_assert(fstat(fd, &status) == 0);
	image->size = (size_t)status.st_size;
	image->bytes = mmap(NULL, image->size, PROT_READ, MAP_PRIVATE, fd, 0);
	cr_assert(image->bytes != MAP_FAILED);
	close(fd);
	header = (const void *)image->bytes;
	cr_assert(memcmp(header->e_ident, ELFMAG, SELFMAG) == 0);
	cr_assert(header->e_ident[EI_CLASS] == ELFCLASS64);
	image->sections = (const void *)(image->bytes + header->e_shoff);
	image->section_count = header->e_shnum;
}

static const Elf64_Shdr *
image_section(const struct image *image, uint32_t type)
{
	for (unsigned index = 0; index < image->section_count; index++)
		if (image->sections[index].sh_type == type)
			return &image->sections[index];
	cr_assert_fail("no section of type %u", type);
	return NULL;
}

/* The text at offset in the string table that belongs to section. */
static const char *
image_string(
    const struct image *image, const Elf64_Shdr *section, uint64_t offset)
{
	return image->bytes + image->sections[section->sh_link].sh_offset +
	    offset;
}

/* The value of a dynamic entry, or UINT64_MAX. */
static uint64_t
image_dynamic(const struct image *image, int64_t tag)
{
	const Elf64_Shdr *section = image_section(image, SHT_DYNAMIC);
	const Elf64_Dyn *entry =
	    (const void *)(image->bytes + section->sh_offset);

	for (; entry->d_tag != DT_NULL; entry++)
		if (entry->d_tag == tag)
			return entry->d_un.d_val;
	return UINT64_MAX;
}

static bool
is_declared(const char *name)
{
	for (size_t index = 0; index < FUNCTIONS; index++)
		if (strcmp(functions[index].name, name) == 0)
			return true;
	return false;
}

Test(library, it_exports_what_the_header_declares_and_nothing_else)
{
	struct image image;
	const Elf64_Shdr *section;
	const Elf64_Sym *symbols;
	size_t exported = 0;

	image_open(&image);
	section = image_section(&image, SHT_DYNSYM);
	symbols = (const void *)(image.bytes + section->sh_offset);

	for (size_t index = 0; index < section->sh_size / sizeof(*symbols);
	     index++) {
		const Elf64_Sym *symbol = &symbols[index];
		const char *name =
		    image_string(&image, section, symbol->st_name);

		if (symbol->st_shndx == SHN_UNDEF ||
		    symbol->st_shndx == SHN_ABS ||
		    ELF64_ST_BIND(symbol->st_info) == STB_LOCAL)
			continue;
		cr_assert(is_declared(name),
		    "%s is exported and not in functions[]", name);
		cr_assert(ELF64_ST_TYPE(symbol->st_info) == STT_FUNC);
		exported++;
	}
	assert_u64(exported, FUNCTIONS);
}

Test(library, it_has_a_soname_with_the_major_version)
{
	struct image image;
	uint64_t name;
	char expected[64];

	image_open(&image);
	name = image_dynamic(&image, DT_SONAME);
	cr_assert(name != UINT64_MAX);

	snprintf(expected, sizeof(expected), "libhwt.so.%d", HWT_VERSION_MAJOR);
	cr_assert_str_eq(
	    image_string(&image, image_section(&image, SHT_DYNAMIC), name),
	    expected);
}

Test(library, its_symbols_are_versioned_from_the_start)
{
	struct image image;
	const Elf64_Shdr *section;
	const Elf64_Verdef *version;
	const Elf64_Verdaux *name;

	/* The first definition is the file's own name, the second a version. */
	image_open(&image);
	cr_assert(image_dynamic(&image, DT_VERDEFNUM) != UINT64_MAX);
	cr_assert(image_dynamic(&image, DT_VERDEFNUM) >= 2);
	section = image_section(&image, SHT_GNU_verdef);
	version = (const void *)(image.bytes + section->sh_offset);
	version = (const void *)((const char *)version + version->vd_next);
	name = (const void *)((const char *)version + version->vd_aux);

	cr_assert(strncmp(image_string(&image, section, name->vda_name), "HWT_",
		      4) == 0);
#ifdef __GLIBC__
	cr_assert(dlvsym(library_open(), "hwt_create",
		      image_string(&image, section, name->vda_name)) != NULL);
#endif
}

static bool
is_mapped(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4096];
	bool found = false;

	cr_assert(maps != NULL);
	while (fgets(line, sizeof(line), maps) != NULL)
		found = found || strstr(line, name) != NULL;
	fclose(maps);
	return found;
}

Test(library, dlclose_does_not_unmap_it)
{
	void *library;
	const char *(*version)(void);

	cr_assert(!is_mapped("/libhwt.so"));
	library = library_open();
	*(void **)&version = dlsym(library, "hwt_version");
	cr_assert(is_mapped("/libhwt.so"));

	cr_assert(dlclose(library) == 0);

	cr_assert(is_mapped("/libhwt.so"));
	cr_assert_str_eq(version(), hwt_version());
}

/* A library that is loaded by a program which has many keys of its own. */
#define KEYS 40

struct guest {
	int (*create)(struct hwt **, const struct hwt_options *);
	int (*new_timeout)(
	    struct hwt *, hwt_timeout *, hwt_task *, void *, uint64_t);
	int (*cancel)(struct hwt *, hwt_timeout);
	int (*stop)(struct hwt *, struct hwt_unprocessed *);
	int (*destroy)(struct hwt *);
	struct hwt *timer;
	hwt_timeout timeout;
	pthread_key_t key;
};

/* The system gives out the first key that is free: the one after these. */
static void
guest_open(struct guest *guest)
{
	struct hwt_options options = {.flags = HWT_MANUAL};
	pthread_key_t key;
	void *library;

	for (unsigned i = 0; i < KEYS; i++)
		cr_assert(pthread_key_create(&key, NULL) == 0);
	cr_assert(pthread_key_create(&guest->key, NULL) == 0);
	cr_assert(pthread_key_delete(guest->key) == 0);
	library = library_open();
	*(void **)&guest->create = dlsym(library, "hwt_create");
	*(void **)&guest->new_timeout = dlsym(library, "hwt_new_timeout");
	*(void **)&guest->cancel = dlsym(library, "hwt_cancel");
	*(void **)&guest->stop = dlsym(library, "hwt_stop");
	*(void **)&guest->destroy = dlsym(library, "hwt_destroy");
	assert_ok(guest->create(&guest->timer, &options));
	assert_ok(guest->new_timeout(
	    guest->timer, &guest->timeout, idle_task, NULL, HWT_SEC(1)));
}

static void
cancel_as_a_threads_first_call(unsigned index, void *arg)
{
	struct guest *guest = arg;

	(void)index;
	assert_ok(guest->cancel(guest->timer, guest->timeout));
	/* To give it a value would have taken memory. */
	cr_assert(pthread_getspecific(guest->key) == NULL);

	for (unsigned i = 0; i < 100; i++)
		assert_ok(guest->new_timeout(
		    guest->timer, NULL, idle_task, NULL, HWT_SEC(1)));
	cr_assert(pthread_getspecific(guest->key) != NULL);
}

Test(library, a_cancel_takes_no_memory_for_its_thread)
{
	struct guest guest;

	guest_open(&guest);

	in_parallel(1, cancel_as_a_threads_first_call, &guest);

	assert_ok(guest.stop(guest.timer, NULL));
	assert_ok(guest.destroy(guest.timer));
}

/* As glibc does for libraries that a program was ending with when a thread of
 * it calls dlopen. */
static void
run_constructors(void *library)
{
	struct link_map *map;
	const Elf64_Dyn *entry;
	void (**functions_of)(void) = NULL;
	size_t count = 0, i;

	cr_assert(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
	for (entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_INIT_ARRAY)
			functions_of = (void *)(uintptr_t)(map->l_addr +
			    entry->d_un.d_ptr);
		else if (entry->d_tag == DT_INIT_ARRAYSZ)
			count = entry->d_un.d_val / sizeof(*functions_of);
	}
	cr_assert(functions_of != NULL && count >= 2);
	for (i = 0; i < count; i++)
		functions_of[i]();
}

Test(library, constructors_that_run_again_change_nothing)
{
	struct guest guest;

	guest_open(&guest);

	run_constructors(library_open());

	assert_ok(guest.cancel(guest.timer, guest.timeout));
	assert_ok(guest.stop(guest.timer, NULL));
	assert_ok(guest.destroy(guest.timer));
}

/* A timer from before main and, where the library is linked statically, from
 * before its own constructor. Only when asked for, since it would be one more
 * in every test; the program that asks looks at it after main. */
#define EARLY "HWT_TEST_EARLY_TIMER"

static struct hwt *early_timer;

__attribute__((constructor(101))) static void
make_early_timer(void)
{
	struct hwt_options options = {.flags = HWT_MANUAL};

	if (getenv(EARLY) != NULL && hwt_create(&early_timer, &options) != 0)
		_exit(2);
}

__attribute__((destructor)) static void
judge_early_timer(void)
{
	if (early_timer == NULL)
		return;
	child_ok(hwt_new_timeout(early_timer, NULL, idle_task, NULL, 0));
	child_check(hwt_pending_timeouts(early_timer) == 1);
	child_ok(hwt_stop(early_timer, NULL));
	child_ok(hwt_destroy(early_timer));
	_exit(7);
}

static void
become_program_with_early_timer(void *arg)
{
	char *const environment[] = {(char[]){EARLY "=1"}, NULL};
	char *const arguments[] = {
	    (char[]){"hwt-test"}, (char[]){"--version"}, NULL};

	(void)arg;
	(void)dup2(STDERR_FILENO, STDOUT_FILENO);
	execve("/proc/self/exe", arguments, environment);
}

Test(library, a_timer_made_in_a_constructor_is_alive_in_main)
{
	assert_u64((uint64_t)child_wait(
		       child_fork(become_program_with_early_timer, NULL)),
	    7);
}

/* The header. */

Test(library, durations_are_nanoseconds_in_64_bits)
{
	int many = 2000000000;

	/* An int times a thousand would have overflowed. */
	assert_u64(HWT_US(many), UINT64_C(2000000000000));
	assert_u64(HWT_MS(many), UINT64_C(2000000000000000));
	assert_u64(HWT_SEC(many), UINT64_C(2000000000000000000));
	assert_u64(HWT_MIN(1), HWT_SEC(60));
	assert_u64(HWT_MIN(60 * 24 * 365), HWT_SEC(31536000));
	assert_u64(HWT_MIN(UINT64_C(60) * 24 * 365 * 584),
	    UINT64_C(18417024) * HWT_SEC(1000));
	assert_u64(HWT_MS(1 + 1), 2000000);
	assert_u64(HWT_NEVER, UINT64_MAX);
	cr_assert(sizeof(HWT_US(1)) == 8 && sizeof(HWT_MIN(1)) == 8);
}

Test(library, durations_may_be_fractions)
{
	double half = 0.5;

	assert_u64(HWT_US(0.5), 500);
	assert_u64(HWT_MS(0.25), 250000);
	assert_u64(HWT_SEC(0.5), 500000000);
	assert_u64(HWT_SEC(1.5), 1500000000);
	assert_u64(HWT_MIN(1.5), HWT_SEC(90));
	assert_u64(HWT_SEC(half), HWT_MS(500));
	assert_u64(HWT_SEC(0.5F), HWT_MS(500));
}

Test(library, durations_are_constants_and_take_any_whole_number)
{
	static const uint64_t constants[] = {HWT_SEC(2), HWT_MS(0.5)};
	enum {
		TWO_US = HWT_US(2)
	};
	char bytes[HWT_US(2)];
	short few = 2;
	int evaluated = 0;

	assert_u64(constants[0], 2000000000);
	assert_u64(constants[1], 500000);
	assert_u64(TWO_US, sizeof(bytes));
	assert_u64(HWT_US(few), 2000);
	assert_u64(HWT_US(evaluated++), 0);
	assert_u64((uint64_t)evaluated, 1);
	/* A product, whatever stands beside it. */
	assert_u64(1000000 / HWT_US(2), 500);
}

Test(library, negative_durations_are_refused_as_delays)
{
	static const uint64_t constants[] = {
	    HWT_SEC(-0.5), HWT_MS(-5), HWT_US(-0.25F), HWT_MIN(-1e-3)};
	double back = -1.5;
	struct hwt *timer;

	assert_ok(hwt_create(&timer, NULL));
	for (size_t index = 0; index < 4; index++)
		assert_rc(hwt_new_timeout(
			      timer, NULL, idle_task, NULL, constants[index]),
		    -EINVAL);
	assert_rc(hwt_new_timeout(timer, NULL, idle_task, NULL, HWT_SEC(back)),
	    -EINVAL);
	worker_timer_close(timer);
}

Test(library, structures_are_laid_out_as_declared)
{
	/* Programs are compiled against these. */
	assert_u64(sizeof(hwt_timeout), 8);
	assert_u64(sizeof(struct hwt_executor), 2 * sizeof(void *));
	assert_u64(sizeof(struct hwt_options), 32 + 6 * sizeof(void *) + 64);
	assert_u64(offsetof(struct hwt_options, ticks_per_wheel), 8);
	assert_u64(offsetof(struct hwt_options, flags), 12);
	assert_u64(offsetof(struct hwt_options, executor), 32);
	assert_u64(sizeof(struct hwt_spec), 16 + 3 * sizeof(void *) + 24);
	assert_u64(offsetof(struct hwt_spec, delay_ns), 2 * sizeof(void *));
	assert_u64(
	    sizeof(struct hwt_timeout_info), 24 + 3 * sizeof(void *) + 16);
	assert_u64(sizeof(struct hwt_unprocessed), 64);
	assert_u64(sizeof(struct hwt_stats), (12 + 64 + 1 + 16) * 8);
	assert_u64(HWT_MANUAL, 1);
	assert_u64(HWT_RELAXED, 2);
}
