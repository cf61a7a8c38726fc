/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes every call of the system that the library can see fail.
 *
 *   faults              a short form: not for every n
 *   faults few          a shorter one
 *   faults all          the first call, the second, and so on, to the last
 *   faults SECTION CALL ERROR N
 *                       one run; N+: the nth call and all after it
 *
 * A run is one section of sections.c in a process of its own, with one call
 * that fails once, or from then on. It must end in time, by itself and well:
 * see RETRY in attempt.h for what is asked of each call of hwt.h, and
 * section_settle for what of each timeout. At the end the library must hold
 * what it holds after a run without a fault.
 */
#include "modules/checkout/test/faults/driver/faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_S 30u
#define WORKERS_MAX 8
#define FAILURES_MAX 20u

const char *__asan_default_options(void);

/* A process that is ended by a signal was ended by the fault. */
const char *
__asan_default_options(void)
{
	return "abort_on_error=1:detect_leaks=0";
}

/* What a run tells the process that started it. */
struct report {
	struct balance balance;
	uint64_t calls[CALLS];
	uint64_t injected;
	bool refused; /* it was not allowed to begin */
	bool aborted; /* as it had to */
};

static struct balance at_start;
static uint64_t at_start_ns;

static int64_t
begun_with(const struct balance *balance)
{
	return balance->blocks | balance->fds | balance->threads;
}

/* A wait that fails at once is not repeated without a pause. */
static void
check_pace(void)
{
	const struct fault *fault = fault_here();
	uint64_t until_ns = fault_off_ns() != 0 ? fault_off_ns() : now_ns();

	if (!fault->permanent || fault->error != ENOSYS)
		return;
	if (fault_injected() > 200 + (until_ns - at_start_ns) / 50000)
		fail("the processor is kept busy");
}

static void
report_write(const struct report *report)
{
	if (write(3, report, sizeof(*report)) != sizeof(*report))
		fail("no report");
}

_Noreturn void
section_abort(void)
{
	struct report report = {.injected = fault_injected(), .aborted = true};

	report_write(&report);
	_exit(0);
}

_Noreturn void
section_end(void)
{
	struct balance held = balance_now();
	struct report report = {.injected = fault_injected()};
	enum call call;

	check_pace();
	section_settle();
	report.refused =
	    fault_here()->call == CALL_PTHREAD_ATFORK && report.injected > 0;
	report.balance.bytes = held.bytes - at_start.bytes;
	report.balance.blocks = held.blocks;
	report.balance.fds = held.fds;
	report.balance.threads = held.threads;
	for (call = 0; call < CALLS; call++)
		report.calls[call] = fault_calls(call);
	report_write(&report);
	_exit(0);
}

static int
section_main(const char *name)
{
	const struct section *section;

	alarm(PATIENCE_S);
	(void)fault_here();
	at_start_ns = now_ns();
	at_start = balance_now();
	CHECK(begun_with(&at_start) == 0);
	/* The page that a fork wipes is there for good, unless an atfork
	 * handler had to take its place. */
	CHECK(at_start.bytes == 0 ||
	    (at_start.bytes == 4096 && fault_calls(CALL_PTHREAD_ATFORK) == 0));
	for (section = sections; section->name != NULL; section++) {
		if (strcmp(section->name, name) == 0) {
			section->run();
			section_end();
		}
	}
	return 2;
}

/* Runs. */

static struct shared {
	_Atomic unsigned next; /* unit of work */
	_Atomic unsigned runs, failures;
	_Atomic uint64_t injected[CALLS];
	struct report baseline[32];
} * shared;

static bool
report_read(int fd, struct report *report)
{
	bool whole = read(fd, report, sizeof(*report)) == sizeof(*report);
	struct report more;

	/* A child that aborted has told first, or another thread. */
	while (read(fd, &more, sizeof(more)) > 0)
		continue;
	close(fd);
	return whole;
}

/* Its status as waitpid tells it. */
static int
run(const char *section, const struct fault *fault, struct report *report)
{
	char words[80];
	int ends[2], status;
	bool told;
	pid_t child;

	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		sprintf(words, "%u %d %" PRIu64 " %u", fault->call,
		    fault->error, fault->nth, fault->permanent);
		setenv("HWT_FAULT", words, 1);
		close(ends[0]);
		if (ends[1] != 3)
			dup2(ends[1], 3);
		execl("/proc/self/exe", "faults", "--section", section,
		    (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	memset(report, 0, sizeof(*report));
	told = report_read(ends[0], report);
	CHECK(waitpid(child, &status, 0) == child);
	/* One that says nothing has not come to its end. */
	return status == 0 && !told ? 1 << 8 : status;
}

static void
complain(const char *section, const struct fault *fault, const char *what)
{
	char error[16];

	shared->failures++;
	if (fault->call == CALL_NONE) {
		fprintf(stderr, "FAIL %s without a fault: %s\n", section, what);
		return;
	}
	fprintf(stderr, "FAIL %s; again: faults %s %s %s %" PRIu64 "%s\n", what,
	    section, swept[fault->call].name, error_name(fault->error, error),
	    fault->nth, fault->permanent ? "+" : "");
}

/* What it held afterwards beyond what it does without a fault. */
static struct balance
left_over(const struct report *report, const struct report *baseline)
{
	struct balance left = report->balance;

	/* What it held is the system's to free. */
	if (report->aborted)
		return (struct balance){0};
	if (report->refused)
		return left;
	left.bytes -= baseline->balance.bytes;
	left.blocks -= baseline->balance.blocks;
	left.fds -= baseline->balance.fds;
	left.threads -= baseline->balance.threads;
	return left;
}

static void
judge(const char *section, const struct fault *fault, int status,
    const struct report *report, const struct report *baseline)
{
	struct balance left = left_over(report, baseline);
	char what[160];

	shared->runs++;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
		complain(section, fault, "it hangs");
	} else if (WIFSIGNALED(status)) {
		sprintf(what, "signal %d", WTERMSIG(status));
		complain(section, fault, what);
	} else if (status != 0) {
		complain(section, fault, "see above");
	} else if ((left.bytes | left.blocks | left.fds | left.threads) != 0) {
		sprintf(what,
		    "left: %" PRId64 " bytes, %" PRId64 " blocks, %" PRId64
		    " descriptors, %" PRId64 " threads",
		    left.bytes, left.blocks, left.fds, left.threads);
		complain(section, fault, what);
	}
	if (fault->call != CALL_NONE)
		shared->injected[fault->call] += report->injected > 0;
}

/* Whether n is every number; or grows by half; or fourfold, and of the errors
 * only the first is tried. */
enum form {
	ALL,
	SHORT_FORM,
	FEW
};

/* n = 1, 2 ... until a run has no nth call. That is not proved in the short
 * forms. */
static void
sweep(const char *section, const struct report *baseline, struct fault fault,
    enum form form)
{
	struct report report;
	int status;

	for (fault.nth = 1; shared->failures < FAILURES_MAX;) {
		status = run(section, &fault, &report);
		judge(section, &fault, status, &report, baseline);
		if (report.injected == 0 || (form == FEW && fault.permanent))
			return;
		if (form == ALL)
			fault.nth++;
		else if (fault.permanent || form == FEW)
			fault.nth *= 4;
		else
			fault.nth += 1 + fault.nth / 2;
		if (form != ALL && fault.nth > baseline->calls[fault.call])
			return;
	}
}

static void
sweep_call(unsigned section, enum call call, enum form form)
{
	const char *name = sections[section].name;
	const struct report *baseline = &shared->baseline[section];
	struct fault fault = {.call = call};
	unsigned i;

	/* What only a fault leads to is tried anyhow. */
	if (baseline->calls[call] == 0 && swept[call].with_error == 0)
		return;
	for (i = 0; i < ERRORS_MAX && swept[call].errors[i] != 0; i++) {
		fault.error = swept[call].errors[i];
		fault.permanent = false;
		sweep(name, baseline, fault, form);
		fault.permanent = true;
		if (!swept[call].passing)
			sweep(name, baseline, fault, form);
		if (form == FEW)
			return;
	}
}

static unsigned
section_count(void)
{
	unsigned count = 0;

	while (sections[count].name != NULL)
		count++;
	return count;
}

static void
worker(enum form form)
{
	unsigned units = section_count() * CALLS;
	unsigned unit;

	while ((unit = shared->next++) < units)
		sweep_call(unit / CALLS, (enum call)(unit % CALLS), form);
	_exit(0);
}

static void
run_baselines(void)
{
	static const struct fault none = {.call = CALL_NONE};
	unsigned i;
	int status;

	for (i = 0; sections[i].name != NULL; i++) {
		struct report *baseline = &shared->baseline[i];

		status = run(sections[i].name, &none, baseline);
		judge(sections[i].name, &none, status, baseline, baseline);
	}
}

static int
tell(void)
{
	uint64_t total = 0;
	unsigned functions = 0;
	enum call call;

	for (call = 0; call < CALLS; call++) {
		if (swept[call].errors[0] == 0)
			continue;
		printf("%-28s %6" PRIu64 "\n", swept[call].name,
		    shared->injected[call]);
		total += shared->injected[call];
		functions++;
		if (shared->injected[call] == 0 && shared->failures == 0) {
			printf("no section calls it\n");
			shared->failures++;
		}
	}
	printf("faults: %s: %" PRIu64 " faults injected into %u functions, "
	       "%u runs of %u sections, %u failed\n",
	    shared->failures == 0 ? "ok" : "FAIL", total, functions,
	    shared->runs, section_count(), shared->failures);
	return shared->failures == 0 ? 0 : 1;
}

static int
run_all(enum form form)
{
	unsigned workers = (unsigned)sysconf(_SC_NPROCESSORS_ONLN) * 2;
	int status = 0;
	unsigned i;

	if (workers > WORKERS_MAX)
		workers = WORKERS_MAX;
	run_baselines();
	for (i = 0; i < workers && shared->failures == 0; i++) {
		pid_t child = fork();

		CHECK(child >= 0);
		if (child == 0)
			worker(form);
	}
	while (wait(&status) > 0)
		shared->failures += status != 0;
	return tell();
}

static int
error_number(const char *name)
{
	char buffer[16];
	int error;

	for (error = 1; error < 10000; error++) {
		if (strcmp(error_name(error, buffer), name) == 0)
			return error;
	}
	fail("no such error: %s", name);
}

/* SECTION CALL ERROR N */
static int
run_one(char **words)
{
	static const struct fault none = {.call = CALL_NONE};
	struct fault fault = {.error = error_number(words[2])};
	struct report report, baseline;
	char *end;
	int status;

	while (fault.call < CALLS &&
	    (swept[fault.call].name == NULL ||
		strcmp(swept[fault.call].name, words[1]) != 0))
		fault.call++;
	fault.nth = strtoull(words[3], &end, 10);
	fault.permanent = *end == '+';
	if (fault.call == CALLS || fault.nth == 0)
		fail("no such call: %s %s", words[1], words[3]);
	(void)run(words[0], &none, &baseline);
	status = run(words[0], &fault, &report);
	judge(words[0], &fault, status, &report, &baseline);
	printf("%" PRIu64 " faults injected, status %d\n", report.injected,
	    status);
	return shared->failures != 0;
}

int
main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "--section") == 0)
		return section_main(argv[2]);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
	    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 5)
		return run_one(argv + 1);
	if (argc == 2 && strcmp(argv[1], "all") == 0)
		return run_all(ALL);
	return run_all(argc == 2 ? FEW : SHORT_FORM);
}
