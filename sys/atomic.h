/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The atomic operations that hwt uses, each with its order in its name. No code
 * relies on an order that is not in the name of an operation: there are no
 * free-standing fences. Three back ends, chosen at compile time:
 *
 *   ConcurrencyKit  the default. ck_pr's operations imply no order beyond the
 *                   machine's; the fences beside them add it. On x86-64 these
 *                   emit no instruction; on aarch64 each is a full one (dmb),
 *                   so that acquire and release around an operation also make
 *                   it seq. (ck_pr_fence_atomic orders stores alone there.)
 *   HWT_ATOMIC_C11  where <ck_pr.h> is missing, on machines other than these
 *                   two, and for ThreadSanitizer, which understands neither
 *                   inline assembly nor fences. C11 has 16-byte operations only
 *                   as calls of libatomic, which take a lock where the compiler
 *                   inlines none: then the library does not compile. (x86-64:
 *                   cmpxchg16b; aarch64: casp, or ldxp and stxp, chosen at run
 *                   time.) HWT_ATOMIC_WIDE, as ThreadSanitizer must see these
 *                   accesses: libatomic's.
 *   HWT_ATOMIC_MODEL  the name of a header that defines all of them, for a
 *                   program that explores interleavings: test/sim/atomic.h,
 *                   which also makes small what is in #ifndef elsewhere.
 *
 * Orders: relaxed, acquire, release and seq are C11's. Every read-modify-write
 * is seq if it succeeds. Only an edge of the form "store, then load" needs seq:
 * each of the two threads uses a ..._seq operation and then a ..._load_seq. On
 * x86-64 a locked instruction is a full fence, so a64_load_seq after it is a
 * plain load; a64_store_seq is the only store that needs a fence instruction.
 *
 * wide_t: two words that change together (16 bytes): the word of a record, with
 * its state, and the deadline. wide_cas compares and sets both; wide_cas_word
 * compares and sets word and leaves the deadline as it is. A wide_load may
 * return a word and the deadline of a later write: use wide_cas on its result,
 * which fails then, or see entry_resolve and hwt_remaining.
 *
 * WEAK MEMORY. Why each edge holds on aarch64, where a processor may reorder
 * loads and stores unless an instruction forbids it, but a store becomes
 * visible to all other processors at once. What the operations become there:
 *
 *                   ConcurrencyKit                   C11
 *   load_acquire    ldr; dmb ish                     ldar
 *   store_release   dmb ish; str                     stlr
 *   load_seq        dmb ish; ldr; dmb ish            ldar
 *   store_seq       dmb ish; str; dmb ish            stlr
 *   add swap or     dmb ish; ldxr, stxr; dmb ish     ldaddal swpal ldsetal
 *   and cas                                          ldclral casal, or
 *                                                    ldaxr, stlxr
 *   wide_cas        dmb ish; ldxp, stxp; dmb ish     caspal, or
 *                                                    ldxp, stlxp; dmb ish
 *
 * dmb ish orders everything before it against everything after it, also a store
 * against a later load, and also when a compare-and-swap found another value
 * and stored nothing. An ldar is not reordered before an earlier stlr or stlxr
 * (an ldapr can be; compilers use it for acquire, not for seq).
 *
 *   Handing on, one writer. The writer fills in data and stores a flag; the
 *   reader loads the flag and reads the data. Forbidden: the new flag with the
 *   old data. A fence stands between the two on either side, or the flag is
 *   stored by stlr and loaded by ldar. The edges slab and chunks (an entry of a
 *   table; limit is stored after the entry, committed after the words of the
 *   page's records), gate, epoch, handing (dispatching_to is stored before the
 *   word becomes HANDED, and read after that word), counted (ended is loaded
 *   before accepted), sleep (wake_sequence is loaded before announced_sequence
 *   is stored; whoever loads that then increments wake_sequence) and reused
 *   (arg is stored after the word became FREE; whoever reads that arg then
 *   reads a later word).
 *
 *   Handing on, several writers. The same, but the flag is changed by
 *   read-modify-writes, with fences on both sides: whoever takes something by
 *   one that succeeds sees what all earlier changes of the flag released. The
 *   edges word (a record's), free (a word of free_bits), permits, called
 *   (wake_sequence, which the futex compares again; with HWT_MANUAL
 *   wake_before), shared, stack and pool. owned: a plain release store, then a
 *   compare-and-swap. dispatched: each thread has its own count, or adds to one
 *   of several, where each addition hands on what those before it released;
 *   hwt_destroy loads all with acquire, and then the worker's, which is stored
 *   before the word becomes HANDED.
 *   In word, a stale handle may find a page that was released to the system,
 *   whose 0 is the kernel's, and no release pairs with that acquire. It sees
 *   what the task wrote all the same: the worker has acquired all records of
 *   the page (E:free) before it releases the memory, and the kernel orders what
 *   was before that call before any processor's access to what is there since.
 *   A thread that commits the page anew stores its words with release.
 *
 *   Store, then load. The edges asleep, closed, queue and set: each thread
 *   writes its word and then reads the other's. Forbidden: both read the old
 *   value. Each has a full fence in between, or an stlr or stlxr and then an
 *   ldar. In closed, the sweep so reads limit, committed and each word. In
 *   queue, set and asleep there may be a third thread: the one that set the
 *   bit, or raised the urgency, which a pusher finds so. That store is then
 *   visible to all. So a worker that misses it afterwards has cleared it after
 *   the pusher read it, and then reads what is below it, in the end the
 *   pusher's word; or it has read it before the pusher did, and then the pusher
 *   reads the wake_before that the worker stored before that.
 *
 * wide_t on aarch64. A load or store of 8 bytes is whole, and so is an ldxp
 * whose stxp succeeds, or a casp. An ldxp that finds another value may return
 * halves of two writes; that says that it has changed, and all callers
 * look again. wide_load reads word, then deadline. It never returns a new word
 * with an older deadline: wide_cas writes both at once, and wide_publish the
 * deadline first. It may return an old word with a newer deadline, also with
 * that of the record's next timeout. Then wide_cas fails because of the word,
 * and hwt_remaining finds another word when it reads it again, since the word
 * became FREE before the deadline was written.
 *
 * Other machines use C11's memory model alone: each edge has the orders that
 * are named above.
 */
#ifndef HWT_ATOMIC_H
#define HWT_ATOMIC_H

/* i386 and armhf compare and swap 8 bytes: with a lock for 16, hwt would be
 * neither lock-free nor safe after a fork. */
#if __SIZEOF_POINTER__ != 8
#error "hwt needs a 64-bit machine"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CACHE_LINE 64

struct wide {
	uint64_t word;
	uint64_t deadline_ns;
};

#ifdef __SANITIZE_THREAD__
#define HWT_ATOMIC_WIDE
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HWT_ATOMIC_WIDE
#endif
#endif

#if !defined(HWT_ATOMIC_C11) && !defined(HWT_ATOMIC_MODEL)
#if defined(HWT_ATOMIC_WIDE) || (!defined(__x86_64__) && !defined(__aarch64__))
#define HWT_ATOMIC_C11
#elif !__has_include(<ck_pr.h>)
#define HWT_ATOMIC_C11
#endif
#endif

#ifdef HWT_ATOMIC_C11

#include <stdatomic.h>

typedef _Atomic(uint64_t) a64_t;

#define A_RELAXED memory_order_relaxed
#define A_ACQUIRE memory_order_acquire
#define A_RELEASE memory_order_release
#define A_SEQ memory_order_seq_cst

#define a64_load_relaxed(p) atomic_load_explicit(p, A_RELAXED)
#define a64_load_acquire(p) atomic_load_explicit(p, A_ACQUIRE)
#define a64_load_seq(p) atomic_load_explicit(p, A_SEQ)
#define a64_store_relaxed(p, value) atomic_store_explicit(p, value, A_RELAXED)
#define a64_store_release(p, value) atomic_store_explicit(p, value, A_RELEASE)
#define a64_store_seq(p, value) atomic_store_explicit(p, value, A_SEQ)
#define a64_add_seq(p, value) atomic_fetch_add_explicit(p, value, A_SEQ)
#define a64_swap_seq(p, value) atomic_exchange_explicit(p, value, A_SEQ)
#define a64_or_seq(p, bits) (void)atomic_fetch_or_explicit(p, bits, A_SEQ)
#define a64_and_seq(p, bits) (void)atomic_fetch_and_explicit(p, bits, A_SEQ)

static inline bool
a64_cas_seq(a64_t *p, uint64_t old, uint64_t value)
{
	return atomic_compare_exchange_strong_explicit(
	    p, &old, value, A_SEQ, A_RELAXED);
}

/* clang has the same as gcc, and does not define the macro. */
#if !defined(HWT_ATOMIC_WIDE) &&                                            \
    (defined(__x86_64__) || defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16) || \
	(defined(__clang__) && defined(__aarch64__)))

typedef struct {
	_Alignas(16) a64_t half[2];
} wide_t;

#define WIDE_OF_HALVES

static inline bool
wide_cas(wide_t *p, struct wide old, struct wide value)
{
#ifdef __x86_64__
	bool done;

	__asm__ volatile(
	    "lock cmpxchg16b %1"
	    : "=@ccz"(done), "+m"(*p), "+a"(old.word), "+d"(old.deadline_ns)
	    : "b"(value.word), "c"(value.deadline_ns)
	    : "memory");
	return done;
#else
	__extension__ typedef unsigned __int128 wide_bits;
	const union {
		struct wide value;
		wide_bits bits;
	} compare = {old}, set = {value};

	return __sync_bool_compare_and_swap(
	    (wide_bits *)__builtin_assume_aligned(p, 16), compare.bits,
	    set.bits);
#endif
}

#elif !defined(HWT_ATOMIC_WIDE)

#error "hwt needs a compare-and-swap of 16 bytes that takes no lock"

#else

/* A checker that emulates these with a lock would not see narrower accesses. */
typedef _Atomic(struct wide) wide_t;

static inline struct wide
wide_load(const wide_t *p)
{
	return atomic_load_explicit(p, A_ACQUIRE);
}

static inline struct wide
wide_load_seq(const wide_t *p)
{
	return atomic_load_explicit(p, A_SEQ);
}

static inline uint64_t
wide_word(const wide_t *p)
{
	return wide_load(p).word;
}

static inline void
wide_init(wide_t *p, uint64_t word)
{
	struct wide v = {.word = word};

	/* A stale handle may read it: see WEAK MEMORY. */
	atomic_store_explicit(p, v, A_RELEASE);
}

static inline bool
wide_cas(wide_t *p, struct wide old, struct wide value)
{
	return atomic_compare_exchange_strong_explicit(
	    p, &old, value, A_SEQ, A_RELAXED);
}

static inline bool
wide_cas_word(wide_t *p, uint64_t old, uint64_t value)
{
	struct wide seen;

	do {
		seen = atomic_load_explicit(p, A_RELAXED);
		if (seen.word != old)
			return false;
	} while (!wide_cas(p, seen, (struct wide){value, seen.deadline_ns}));
	return true;
}

/* For the owner of a FREE record: no other thread changes its deadline. */
static inline bool
wide_publish(wide_t *p, uint64_t old, struct wide value)
{
	struct wide seen = atomic_load_explicit(p, A_RELAXED);

	return seen.word == old && wide_cas(p, seen, value);
}

#endif

#elif defined(HWT_ATOMIC_MODEL)

#include HWT_ATOMIC_MODEL

#else /* ConcurrencyKit */

#include <ck_pr.h>

/* Headers of another machine compile without a word and drop every fence. */
#if defined(__aarch64__) && !defined(CK_MD_RMO)
#error "ck_md.h is not for this machine: CK_MD_RMO is missing"
#endif
#if defined(__aarch64__) && defined(CK_MD_LSE_ENABLE)
#error "ConcurrencyKit's 16-byte compare-and-swap by LSE answers the opposite"
#endif
#if !defined(CK_F_PR_CAS_64_2_VALUE)
#error "ConcurrencyKit has no 16-byte compare-and-swap here"
#endif

typedef uint64_t a64_t;
typedef struct {
	_Alignas(16) uint64_t half[2];
} wide_t;

#define WIDE_OF_HALVES

#define ATOMIC(type, name, before, operation, after, ...) \
	static inline type name(__VA_ARGS__)              \
	{                                                 \
		type result;                              \
                                                          \
		before;                                   \
		result = operation;                       \
		after;                                    \
		return result;                            \
	}
#define ATOMIC_LOAD(name, before, after) \
	ATOMIC(uint64_t, name, before, ck_pr_load_64(p), after, const a64_t *p)
#define ATOMIC_STORE(name, before, after)                                     \
	ATOMIC(int, name, before, (ck_pr_store_64(p, n), 0), after, a64_t *p, \
	    uint64_t n)
/* A read-modify-write is seq, whatever it finds. */
#define ATOMIC_MODIFY(type, name, operation, ...)            \
	ATOMIC(type, name, ck_pr_fence_release(), operation, \
	    ck_pr_fence_acquire(), a64_t *p, __VA_ARGS__)

ATOMIC_LOAD(a64_load_relaxed, , )
ATOMIC_LOAD(a64_load_acquire, , ck_pr_fence_acquire())
ATOMIC_LOAD(a64_load_seq, ck_pr_fence_atomic_load(), ck_pr_fence_acquire())
ATOMIC_STORE(a64_store_relaxed, , )
ATOMIC_STORE(a64_store_release, ck_pr_fence_release(), )
ATOMIC_STORE(a64_store_seq, ck_pr_fence_release(), ck_pr_fence_memory())
ATOMIC_MODIFY(uint64_t, a64_add_seq, ck_pr_faa_64(p, n), uint64_t n)
ATOMIC_MODIFY(uint64_t, a64_swap_seq, ck_pr_fas_64(p, n), uint64_t n)
ATOMIC_MODIFY(int, a64_or_seq, (ck_pr_or_64(p, bits), 0), uint64_t bits)
ATOMIC_MODIFY(int, a64_and_seq, (ck_pr_and_64(p, bits), 0), uint64_t bits)
ATOMIC_MODIFY(bool, a64_cas_seq, ck_pr_cas_64(p, old, value), uint64_t old,
    uint64_t value)

static inline bool
wide_cas(wide_t *p, struct wide old, struct wide value)
{
	uint64_t compare[2] = {old.word, old.deadline_ns};
	uint64_t set[2] = {value.word, value.deadline_ns};
	uint64_t seen[2];
	bool done;

	ck_pr_fence_release();
	done = ck_pr_cas_64_2_value(p->half, compare, set, seen);
	ck_pr_fence_acquire();
	return done;
}

#endif

#ifdef WIDE_OF_HALVES

static inline uint64_t
wide_word(const wide_t *p)
{
	return a64_load_acquire(&p->half[0]);
}

static inline struct wide
wide_load(const wide_t *p)
{
	struct wide v;

	v.word = a64_load_acquire(&p->half[0]);
	v.deadline_ns = a64_load_acquire(&p->half[1]);
	return v;
}

static inline struct wide
wide_load_seq(const wide_t *p)
{
	struct wide v;

	v.word = a64_load_seq(&p->half[0]);
	v.deadline_ns = a64_load_acquire(&p->half[1]);
	return v;
}

static inline void
wide_init(wide_t *p, uint64_t word)
{
#ifdef WIDE_BEGINS /* a function that is told */
	WIDE_BEGINS(p);
#endif
	a64_store_relaxed(&p->half[1], 0);
	/* E:word release. A stale handle may read it: see WEAK MEMORY. */
	a64_store_release(&p->half[0], word);
}

static inline bool
wide_cas_word(wide_t *p, uint64_t old, uint64_t value)
{
	return a64_cas_seq(&p->half[0], old, value);
}

static inline bool
wide_publish(wide_t *p, uint64_t old, struct wide value)
{
	a64_store_relaxed(&p->half[1], value.deadline_ns);
	return wide_cas_word(p, old, value.word);
}

#endif

/* ThreadSanitizer sees nothing of a library that was not compiled for it. So
 * the edges that users' data crosses are annotated for its runtime, where a
 * program has one; otherwise these symbols are 0. The address is any that both
 * sides know: releases of one add up. */
#if defined(HWT_ATOMIC_WIDE) || defined(HWT_ATOMIC_MODEL) || \
    defined(HWT_TELLS_NOTHING) || defined(__APPLE__)

#define tsan_is_here() false
#define tsan_release(address) ((void)(address))
#define tsan_acquire(address) ((void)(address))

#else

extern void __tsan_acquire(void *address) __attribute__((weak));
extern void __tsan_release(void *address) __attribute__((weak));

static inline bool
tsan_is_here(void)
{
	return __builtin_expect(__tsan_acquire != NULL, 0);
}

/* Before the operation that hands on. */
static inline void
tsan_release(const void *address)
{
	if (tsan_is_here())
		__tsan_release((void *)(uintptr_t)address);
}

/* After the operation that takes over. */
static inline void
tsan_acquire(const void *address)
{
	if (tsan_is_here() && address != NULL)
		__tsan_acquire((void *)(uintptr_t)address);
}

#endif

/* Of a member: those before it are not in its line. */
#ifndef APART
#define APART _Alignas(CACHE_LINE)
#endif

/* Asks for the cache line of what is about to be read and then changed: where
 * another core has it, it moves once and not twice. */
static inline void
take_line(const volatile void *p)
{
#ifdef HWT_TAKES_LINE /* a function that is told */
	HWT_TAKES_LINE(p);
#elif defined(__x86_64__)
	/* Without -mprfchw, __builtin_prefetch only asks to read. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const volatile char *)p));
#else
	__builtin_prefetch((const void *)(uintptr_t)p, 1);
#endif
}

/* A pointer. */
typedef a64_t aptr_t;

static inline void *
aptr_load_acquire(const aptr_t *p)
{
	return (void *)(uintptr_t)a64_load_acquire(p);
}

static inline void
aptr_store_release(aptr_t *p, const void *value)
{
	a64_store_release(p, (uint64_t)(uintptr_t)value);
}

static inline bool
aptr_cas_seq(aptr_t *p, const void *old, const void *value)
{
	return a64_cas_seq(
	    p, (uint64_t)(uintptr_t)old, (uint64_t)(uintptr_t)value);
}

static inline void *
aptr_swap_seq(aptr_t *p, const void *value)
{
	return (void *)(uintptr_t)a64_swap_seq(p, (uint64_t)(uintptr_t)value);
}

/* A counter with one writer at a time: no locked instruction. */
static inline void
a64_count(a64_t *p, uint64_t by)
{
	a64_store_release(p, a64_load_relaxed(p) + by);
}

#endif
