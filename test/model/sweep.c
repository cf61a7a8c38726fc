/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each scenario in a process of its own, with one call of the system that fails
 * once, or from then on: the first, the second ... nth of its kind, with each
 * error. A run must end in time, by itself and well, and the library must then
 * hold what it holds after a run without a failure.
 */
#include "test/model/scenario.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 30u
#define FAILURES_MAX 10u
#define REPORT_FD 3

/* Reported by a run to the process that started it. */
struct report {
	struct plan_held held;
	uint64_t calls[PLAN_CALLS];
	uint64_t injected;
	bool aborted; /* as it had to */
};

static struct plan_held held_at_start;
static uint64_t begun_ns;

uint64_t
now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return HWT_SEC(now.tv_sec) + (uint64_t)now.tv_nsec;
}

void
pause_ns(uint64_t ns)
{
	struct timespec pause = {
	    (time_t)(ns / HWT_SEC(1)), (long)(ns % HWT_SEC(1))};

	(void)nanosleep(&pause, NULL);
}

void
fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\n");
	_exit(1);
}

static void
fail_model(const char *text)
{
	fail("%s", text);
}

/* In the process of a run. */

/* A wait that is refused is not repeated without a pause. */
static void
check_pace(void)
{
	uint64_t end_ns = plan_ended_ns() != 0 ? plan_ended_ns() : now_ns();

	if (plan_now()->lasting && plan_now()->error == ENOSYS &&
	    plan_failures() > 200 + (end_ns - begun_ns) / 50000)
		fail("the processor is kept busy");
}

static void
report(bool aborted)
{
	struct report report = {
	    .injected = plan_failures(), .aborted = aborted};
	struct plan_held held = plan_held();
	enum plan_call call;

	report.held = (struct plan_held){held.bytes - held_at_start.bytes,
	    held.blocks, held.fds, held.threads};
	for (call = 0; call < PLAN_CALLS; call++)
		report.calls[call] = plan_count(call);
	_exit(write(REPORT_FD, &report, sizeof(report)) != sizeof(report));
}

_Noreturn void
scenario_end(void)
{
	check_pace();
	scenario_settle();
	report(false);
	abort();
}

static void
report_abort(void)
{
	report(true);
}

static int
run_here(const char *name)
{
	const struct scenario *scenario;

	alarm(PATIENCE_S);
	begun_ns = now_ns();
	held_at_start = plan_held();
	plan_aborts = report_abort;
	model_failed = fail_model;
	for (scenario = scenarios; scenario->name != NULL; scenario++) {
		if (strcmp(scenario->name, name) == 0) {
			scenario->run();
			scenario_end();
		}
	}
	return 2;
}

/* In the process that starts them. */

static unsigned runs, failures;
static uint64_t injected[PLAN_CALLS];

static const char *
plan_words(const struct plan *plan)
{
	static char words[80];

	(void)snprintf(words, sizeof(words), "%u %d %" PRIu64 " %u", plan->call,
	    plan->error, plan->nth, plan->lasting);
	return words;
}

static void
exec_here(const char *name, const struct plan *plan, int report_fd)
{
	(void)setenv("HWT_PLAN", plan_words(plan), 1);
	(void)dup2(report_fd, REPORT_FD);
	execl(
	    "/proc/self/exe", "model", "--sweep", "--here", name, (char *)NULL);
	_exit(127);
}

/* NULL: it passed, or else what is wrong with it. */
static const char *
run_apart(const char *name, const struct plan *plan, struct report *report)
{
	int ends[2], status;
	bool told;
	pid_t child;

	memset(report, 0, sizeof(*report));
	CHECK(pipe(ends) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		exec_here(name, plan, ends[1]);
	close(ends[1]);
	told = read(ends[0], report, sizeof(*report)) == sizeof(*report);
	CHECK(waitpid(child, &status, 0) == child);
	close(ends[0]);
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? "hangs" : "crashes";
	return status != 0 || !told ? "see above" : NULL;
}

/* Whether it holds more than a run without a failure does. */
static const char *
compare_held(const struct report *report, const struct report *baseline)
{
	struct plan_held expected = baseline->held;

	if (report->aborted)
		return NULL;
	/* The handler of forks was refused: nothing can be made. */
	if (report->injected > 0 && plan_now()->call == PLAN_PTHREAD_ATFORK)
		expected = (struct plan_held){0, 0, 0, 0};
	if (report->held.bytes > expected.bytes)
		return "memory is left";
	if (report->held.blocks > expected.blocks)
		return "blocks of the heap are left";
	if (report->held.fds != expected.fds)
		return "descriptors are left";
	return report->held.threads > expected.threads ? "threads are left"
						       : NULL;
}

static uint64_t
run_and_judge(
    const char *name, const struct plan *plan, const struct report *baseline)
{
	struct report report;
	const char *wrong;

	plan_begin(plan);
	wrong = run_apart(name, plan, &report);
	if (wrong == NULL)
		wrong = compare_held(&report, baseline);
	runs++;
	injected[plan->call] += report.injected > 0;
	if (wrong != NULL) {
		failures++;
		fprintf(stderr,
		    "FAIL %s: %s; repeat: HWT_PLAN='%s' model --sweep --here "
		    "%s 3>&2\n",
		    wrong, plan_kinds[plan->call].name, plan_words(plan), name);
	}
	return report.injected;
}

/* n = 1, 2 ... until a run has no nth call; where it has many, by steps that
 * grow. */
static void
sweep_error(const struct scenario *scenario, const struct report *baseline,
    struct plan plan)
{
	uint64_t most = baseline->calls[plan.call];

	for (plan.nth = 1; failures < FAILURES_MAX;
	     plan.nth += 1 + plan.nth / (plan.lasting ? 1 : 4)) {
		if (run_and_judge(scenario->name, &plan, baseline) == 0 ||
		    plan.nth > most)
			return;
	}
}

static void
sweep_call(const struct scenario *scenario, const struct report *baseline,
    enum plan_call call)
{
	const struct plan_kind *kind = &plan_kinds[call];
	struct plan plan = {.call = call};
	unsigned i;

	/* Calls that follow only another failure are tried in any case. */
	if (baseline->calls[call] == 0 && kind->with_error == 0)
		return;
	for (i = 0; i < PLAN_ERRORS_MAX && kind->errors[i].error != 0; i++) {
		plan.error = kind->errors[i].error;
		plan.lasting = false;
		sweep_error(scenario, baseline, plan);
		plan.lasting = true;
		if (!kind->once_only &&
		    !(scenario->one_thread && plan.error == EINTR))
			sweep_error(scenario, baseline, plan);
	}
}

static int
tell(bool all)
{
	uint64_t total = 0;
	enum plan_call call;

	for (call = 0; call < PLAN_CALLS; call++) {
		total += injected[call];
		if (!all || injected[call] > 0)
			continue;
		printf("no scenario calls %s\n", plan_kinds[call].name);
		failures++;
	}
	printf("model: sweep: %s: %u runs, %" PRIu64
	       " with a failure of one of %u kinds, %u failed\n",
	    failures == 0 ? "ok" : "FAIL", runs, total, (unsigned)PLAN_CALLS,
	    failures);
	return failures == 0 ? 0 : 1;
}

static void
sweep_scenario(const struct scenario *scenario)
{
	const struct plan none = {.nth = 0};
	struct report baseline;
	const char *wrong = run_apart(scenario->name, &none, &baseline);
	enum plan_call call;

	if (wrong != NULL)
		fail("%s without a failure: %s", scenario->name, wrong);
	for (call = 0; call < PLAN_CALLS; call++)
		sweep_call(scenario, &baseline, call);
}

int
sweep_main(int argc, char **argv)
{
	const struct scenario *scenario;

	if (argc == 2 && strcmp(argv[0], "--here") == 0)
		return run_here(argv[1]);
	for (scenario = scenarios; scenario->name != NULL; scenario++)
		if (argc == 0 || strcmp(scenario->name, argv[0]) == 0)
			sweep_scenario(scenario);
	return tell(argc == 0);
}
