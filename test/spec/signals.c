/* SPDX-License-Identifier: Apache-2.0 */
/*
 * signals: the worker blocks all signals but SIGSEGV, SIGBUS, SIGFPE, SIGILL,
 * SIGTRAP, SIGSYS and SIGPROF; threads of a pool do as the worker.
 */
#include "test/spec/support_promises.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

SUITE(signals);

static const int unblocked[] = {
    SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGPROF};

#define UNBLOCKED (sizeof(unblocked) / sizeof(unblocked[0]))

#ifdef __GLIBC__
#define C_LIBRARY_S_THIRD 0u
#else
#define C_LIBRARY_S_THIRD signal_bit(34)
#endif

static uint64_t
signal_bit(int number)
{
	return UINT64_C(1) << (number - 1);
}

/* All but these, but for the two that nobody can block and those that the C
 * library keeps for itself: glibc two, musl three. */
static void
assert_mask(pid_t thread)
{
	const uint64_t beyond = signal_bit(SIGKILL) | signal_bit(SIGSTOP) |
	    signal_bit(32) | signal_bit(33) | C_LIBRARY_S_THIRD;
	uint64_t blocked = thread_status(thread, "SigBlk", 16);
	uint64_t expected = UINT64_MAX;

	for (size_t index = 0; index < UNBLOCKED; index++)
		expected &= ~signal_bit(unblocked[index]);
	cr_assert((blocked & ~beyond) == (expected & ~beyond),
	    "thread %d blocks %016" PRIx64, thread, blocked);
}

WorkerTest(signals, the_worker_blocks_all_but_seven)
{
	assert_ok(hwt_start(live.timer));
	live_pass_tick();

	assert_mask(thread_await("hwt-worker"));
}

#ifdef __GLIBC__
Test(signals, a_worker_made_with_a_mask_of_its_own_does_so_too)
{
	struct hwt_options options = {0};
	pthread_attr_t attr;
	sigset_t none;

	sigemptyset(&none);
	pthread_attr_init(&attr);
	cr_assert(pthread_attr_setsigmask_np(&attr, &none) == 0);
	options.thread_attr = &attr;

	live_open(&options);
	assert_ok(hwt_start(live.timer));
	live_pass_tick();

	assert_mask(thread_await("hwt-worker"));
	live_close();
	pthread_attr_destroy(&attr);
}
#endif

Test(signals, the_threads_of_a_pool_do_so_too)
{
	struct hwt_pool *pool;

	assert_ok(hwt_pool_create(&pool, 1, 0));

	assert_mask(thread_await("hwt-pool"));

	assert_ok(hwt_pool_destroy(pool));
}

WorkerTest(signals, the_mask_of_the_caller_stays_as_it_is)
{
	struct hwt_pool *pool;
	sigset_t set;
	pid_t self = (pid_t)syscall(SYS_gettid);
	uint64_t before;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGSEGV);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	before = thread_status(self, "SigBlk", 16);

	assert_ok(hwt_start(live.timer));
	assert_ok(hwt_pool_create(&pool, 2, 0));

	assert_u64(thread_status(self, "SigBlk", 16), before);
	live_pass_tick();
	assert_mask(thread_await("hwt-worker"));
	assert_ok(hwt_pool_destroy(pool));
}

static _Atomic uint64_t handled;
static pthread_t handled_by;

static void
handle(int number)
{
	(void)number;
	handled_by = pthread_self();
	handled++;
}

static void
handle_signal(int number)
{
	struct sigaction action = {.sa_handler = handle};

	sigemptyset(&action.sa_mask);
	cr_assert(sigaction(number, &action, NULL) == 0);
}

WorkerTest(
    signals, a_signal_to_the_process_goes_to_the_applications_own_threads)
{
	struct timespec none = {0};
	sigset_t set;

	/* The only thread that could take it blocks it for a while. */
	assert_ok(hwt_start(live.timer));
	live_pass_tick();
	handle_signal(SIGUSR1);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);

	cr_assert(kill(getpid(), SIGUSR1) == 0);
	live_pass_tick();

	assert_u64(handled, 0);
	cr_assert(sigtimedwait(&set, NULL, &none) == SIGUSR1);
}

static void
then_raises(struct probe *probe)
{
	const int *number = probe->data;

	raise(*number);
}

WorkerTest(signals, the_seven_reach_their_handlers_in_the_worker)
{
	for (size_t index = 0; index < UNBLOCKED; index++) {
		int number = unblocked[index];
		struct probe probe = {.then = then_raises, .data = &number};

		handle_signal(number);
		assert_ok(
		    hwt_new_timeout(live.timer, NULL, probe_task, &probe, 0));
		wait_for(&probe.runs, 1);
		assert_u64(handled, index + 1);
		cr_assert(pthread_equal(handled_by, probe.thread));
		cr_assert(!pthread_equal(handled_by, pthread_self()));
	}
}
