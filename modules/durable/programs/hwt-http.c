/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt-http - a worker that calls the URL of each task.
 *
 *   hwt-http.c           options, start and end
 *   hwt-http-request.c   what a task asks for, and what is sent
 *   hwt-http-address.c   which addresses may be connected to
 *   hwt-http-calls.c     the thread that makes the calls
 *
 * The library's thread reads the payload and hands the call over; the callback
 * answers HWT_DURABLE_LATER. So thousands of calls are under way on one thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "hwt-http-calls.h"
#include "options.h"
#include "worker-serve.h"

static const char usage[] =
    "usage: hwt-http --queue Q [OPTION...]\n"
    "\n"
    "  --queue Q               the queue to take tasks from; it may be given\n"
    "                          up to 16 times, for queues that take turns\n"
    "  --concurrency N         so many calls at a time; 1000\n"
    "  --per-host N            so many of them to one host and port; 100\n"
    "  --limit SECONDS         of a call, with its redirects; 30\n"
    "  --connect-limit SECONDS of a connection; 10\n"
    "  --visibility SECONDS    after a crash of hwt-http, others take its "
    "tasks\n"
    "                          over so late; 30\n"
    "  --grace SECONDS         at the end, it waits so long for calls; 30\n"
    "  --allow LIST            addresses (10.0.0.0/8), hosts (a.example) and\n"
    "                          all below one (.example) that may be called\n"
    "                          besides public addresses; none\n"
    "  --deny LIST             those that may not; none\n"
    "  --redirects N           so many are followed; 5\n"
    "  --retry-after-max SECONDS  a Retry-After that says more says this; "
    "3600\n"
    "  --answer-max BYTES      so much of an answer's body is read; 65536\n"
    "  --headers-max BYTES     an answer may have so much of headers; 16384\n"
    "  --secret-file FILE      calls are signed with its lines, 1 to 4\n"
    "  --ca-file FILE          who certifies servers; the system's\n"
    "  --proxy URL             makes the connections, and decides about\n"
    "                          addresses; none\n"
    "  --metrics [ADDRESS:]PORT  serves GET /metrics there; nowhere\n"
    "\n"
    "The payload is {\"url\": ..., \"method\": \"POST\", \"headers\": {...},\n"
    "\"body\": ..., \"timeout\": SECONDS}, all but url as wanted. The answer\n"
    "says: 2xx done; 429 and 503 to be tried again after its Retry-After; any\n"
    "other 4xx a dead letter; anything else, or none, to be tried again "
    "later,\n"
    "as long as attempts are left.\n";

#define CONCURRENCY_DEFAULT 1000
#define CONCURRENCY_MAX 65536
#define PER_HOST_DEFAULT 100
#define DAY_NS HWT_SEC(86400)
/* Of a call: while its name is looked up two of libcurl and those of
 * getaddrinfo, and then two connections, by IPv6 and by IPv4. */
#define DESCRIPTORS_OF_CALL 4u
#define DESCRIPTORS 96u /* of the library, of --metrics, and more */

static const char *queue, *concurrency, *per_host, *limit, *connect_limit,
    *visibility, *grace, *allow, *deny, *redirects, *retry_after_max,
    *answer_max, *headers_max, *secret_file, *ca_file, *proxy;

static const struct option_row rows[] = {
    {"queue", &queue, false},
    {"concurrency", &concurrency, false},
    {"per-host", &per_host, false},
    {"limit", &limit, false},
    {"connect-limit", &connect_limit, false},
    {"visibility", &visibility, false},
    {"grace", &grace, false},
    {"allow", &allow, false},
    {"deny", &deny, false},
    {"redirects", &redirects, false},
    {"retry-after-max", &retry_after_max, false},
    {"answer-max", &answer_max, false},
    {"headers-max", &headers_max, false},
    {"secret-file", &secret_file, false},
    {"ca-file", &ca_file, false},
    {"proxy", &proxy, false},
    {"metrics", &worker_metrics_at, false},
    {NULL, NULL, false},
};

static struct secrets secrets;

static void
secrets_open(void)
{
	const char *wrong;

	if (secret_file == NULL)
		return;
	wrong = secrets_read(&secrets, secret_file);
	if (wrong != NULL)
		usage_error("--secret-file: %s", wrong);
}

/* Addresses that a proxy connects to are not seen here. */
static void
proxy_check(void)
{
	struct target target;

	if (proxy == NULL)
		return;
	if (allow != NULL || deny != NULL)
		usage_error("--proxy excludes --allow and --deny: the proxy "
			    "decides about addresses");
	if (target_read(&target, proxy) != NULL)
		usage_error("--proxy: want http://HOST:PORT");
}

static void
ca_file_check(void)
{
	FILE *file = ca_file != NULL ? fopen(ca_file, "re") : NULL;

	if (ca_file != NULL && file == NULL)
		usage_error("--ca-file: %s", system_text(errno));
	if (file != NULL)
		(void)fclose(file);
}

static struct call_options
call_options_read(void)
{
	struct call_options options = {.proxy = proxy,
	    .ca_file = ca_file,
	    .secrets = &secrets,
	    .rules = address_rules_read(allow, deny)};

	options.limit_ms =
	    option_seconds("limit", limit, HWT_SEC(30), HWT_MS(1), DAY_NS) /
	    HWT_MS(1);
	options.connect_ms = option_seconds("connect-limit", connect_limit,
				 HWT_SEC(10), HWT_MS(1), DAY_NS) /
	    HWT_MS(1);
	options.retry_after_max_s =
	    option_seconds("retry-after-max", retry_after_max, HWT_SEC(3600),
		HWT_SEC(1), DAY_NS) /
	    HWT_SEC(1);
	options.answer_max =
	    option_number("answer-max", answer_max, 65536, 0, 1u << 30);
	options.headers_max =
	    option_number("headers-max", headers_max, 16384, 64, 1u << 20);
	options.concurrency = (uint32_t)option_number("concurrency",
	    concurrency, CONCURRENCY_DEFAULT, 1, CONCURRENCY_MAX);
	options.per_host = (uint32_t)option_number(
	    "per-host", per_host, PER_HOST_DEFAULT, 1, CONCURRENCY_MAX);
	options.redirects =
	    (uint32_t)option_number("redirects", redirects, 5, 0, 50);
	secrets_open();
	proxy_check();
	ca_file_check();
	return options;
}

/* More than a process may have by default. */
static void
descriptors_raise(uint32_t calls)
{
	rlim_t wanted = DESCRIPTORS_OF_CALL * calls + DESCRIPTORS;
	struct rlimit have;

	if (getrlimit(RLIMIT_NOFILE, &have) != 0 || have.rlim_cur >= wanted)
		return;
	if (have.rlim_max < wanted)
		usage_error("--concurrency: %u calls need %llu descriptors; "
			    "this process may have %llu (ulimit -n)",
		    calls, (unsigned long long)wanted,
		    (unsigned long long)have.rlim_max);
	have.rlim_cur = wanted;
	(void)setrlimit(RLIMIT_NOFILE, &have);
}

static struct hwt_durable_worker_options
worker_options_read(void)
{
	struct hwt_durable_worker_options options = {.callback = calls_add};

	if (queue == NULL)
		usage_error("want --queue");
	option_queues("--queue", queue);
	options.queue = queue;
	options.visibility_ns = option_seconds(
	    "visibility", visibility, HWT_SEC(30), HWT_SEC(1), DAY_NS);
	return options;
}

int
main(int argc, char **argv)
{
	static const struct program program = {.name = "hwt-http",
	    .usage = usage,
	    .rows = {rows},
	    .many = "queue"};
	struct hwt_durable_worker_options work;
	struct call_options options;
	struct hwt_durable *durable;
	struct calls *calls;
	enum status status;
	uint64_t grace_ns;
	int error;

	if (options_read(&program, argc, argv) != 0)
		usage_error("%s: there are options alone", argv[0]);
	work = worker_options_read();
	options = call_options_read();
	grace_ns = option_seconds("grace", grace, HWT_SEC(30), 0, DAY_NS);
	work.outstanding_max = options.concurrency;
	descriptors_raise(options.concurrency);
	worker_metrics_open();
	/* However long that takes, a signal ends us as it would any program. */
	durable = handle_open();
	error = calls_start(&calls, &options);
	if (error != 0) {
		complain("%s", system_text(error));
		finish(STATUS_NO);
	}
	work.ctx = calls;
	status = worker_serve(durable, &work, calls_release, grace_ns);
	calls_end(calls);
	address_rules_free(options.rules);
	finish(status);
}
