/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One turn of the thread: wait for sockets, for the time that libcurl has set,
 * or to be woken; let libcurl work; say how calls have ended; take what
 * callbacks have put into the inbox; begin calls.
 *
 * A call is in the inbox, waits for its host, or is under way. A host is there
 * while it has calls, and is in the list ready while it has one that may begin.
 * Hosts take turns there, so that none has to wait for another one's calls
 * while fewer are under way than may be.
 *
 * A host that was not reached yet has few calls, for each looks its name up in
 * a thread of libcurl's; the others find it in libcurl's cache.
 *
 * LOCK. It protects inbox and releases. All else belongs to the thread.
 */
#define _GNU_SOURCE
#include "hwt-http-calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <unistd.h>

#include "options.h"
#include "wait.h"

#define BUCKETS 4096u /* of hosts; a power of two */
#define UNREACHED_MAX 4u /* calls of a host that was not reached yet */
#define EVENTS_MAX 256
#define BEGIN_MAX 300 /* bytes of an answer that are logged */
#define LOGGED_MAX 20u /* failures that are logged in a second */
#define ADDRESS_MAX INET6_ADDRSTRLEN

struct host;

struct call {
	struct calls *calls;
	struct host *host;
	TAILQ_ENTRY(call) next;
	struct hwt_durable_token token;
	struct request request;
	struct sender sender;

	/* Of what is under way. A redirect changes these. */
	CURL *easy;
	struct curl_slist *headers;
	struct target target;
	const char *method, *body;
	uint32_t redirects;
	bool other; /* it was redirected to another origin */

	int64_t until_ms;
	/* Of the request that is under way. */
	uint32_t opened, refused; /* sockets */
	char refused_address[ADDRESS_MAX];
	size_t header_bytes, answer_bytes;
	bool headers_whole, headers_long, answer_cut;
	char begin[BEGIN_MAX];
	char error[CURL_ERROR_SIZE];
};

TAILQ_HEAD(call_list, call);

struct host {
	LIST_ENTRY(host) bucket;
	TAILQ_ENTRY(host) turn; /* while it is ready */
	struct call_list waiting;
	uint32_t under_way;
	bool ready, reached;
	char origin[ORIGIN_MAX];
};

LIST_HEAD(host_bucket, host);
TAILQ_HEAD(host_list, host);

struct calls {
	const struct call_options *options;
	pthread_t thread;
	pthread_mutex_t lock;
	struct call_list inbox;
	bool releases;
	_Atomic bool ended;
	int wake_fd;

	int epoll_fd;
	CURLM *multi;
	bool has_timer;
	int64_t timer_ms;
	struct call_list under_way;
	uint32_t count; /* of these */
	struct host_bucket host[BUCKETS];
	struct host_list ready;
	CURL *idle[EVENTS_MAX]; /* handles for the next calls */
	uint32_t idle_count;
	int64_t logged_s; /* the second that logged and unlogged count for */
	uint32_t logged, unlogged;
};

static void
calls_wake(struct calls *calls)
{
	static const uint64_t one = 1;

	(void)!write(calls->wake_fd, &one, sizeof(one));
}

/* How a call has ended. */

static void
call_free(struct call *call)
{
	curl_slist_free_all(call->headers);
	request_free(&call->request);
	free(call);
}

/* All of them would be too many, if another machine fails all calls. */
static void
log_failure(struct calls *calls, const struct call *call, const char *why)
{
	int64_t second = wait_now_ms() / 1000;

	if (second != calls->logged_s) {
		if (calls->unlogged > 0)
			complain("%" PRIu32 " more failures", calls->unlogged);
		calls->logged_s = second;
		calls->logged = calls->unlogged = 0;
	}
	if (calls->logged == LOGGED_MAX) {
		calls->unlogged++;
		return;
	}
	calls->logged++;
	complain("%s: attempt %" PRIu32 ": %s", call->sender.id,
	    call->sender.attempt, why);
}

/* Says that it has failed, and why. The attempt may be over since long. */
static void __attribute__((format(printf, 4, 5))) call_fail(
    struct call *call, int outcome, uint64_t delay_ns, const char *format, ...)
{
	char why[HWT_DURABLE_ERROR_MAX + 1];
	va_list list;

	va_start(list, format);
	(void)vsnprintf(why, sizeof(why), format, list);
	va_end(list);
	log_failure(call->calls, call, why);
	if (hwt_durable_finish_error(
		call->token, outcome, delay_ns, why, strlen(why)) == -ENOMEM)
		(void)hwt_durable_finish(call->token, outcome, delay_ns);
}

/* What has come of the body is logged as far as it is text. */
static void
call_answered(struct call *call, long status)
{
	const char *text = call->begin;
	const char *between = text[0] != '\0' ? ": " : "";
	uint64_t most_s = call->calls->options->retry_after_max_s;
	uint64_t delay_ns = HWT_NEVER;
	curl_off_t seconds = 0;
	int outcome = HWT_DURABLE_RETRY;

	if (status >= 200 && status < 300) {
		(void)hwt_durable_finish(call->token, 0, 0);
		return;
	}
	if (status == 429 || status == 503) {
		(void)curl_easy_getinfo(
		    call->easy, CURLINFO_RETRY_AFTER, &seconds);
		if (seconds > 0)
			delay_ns = HWT_SEC((uint64_t)seconds < most_s
				? (uint64_t)seconds
				: most_s);
	} else if (status >= 400 && status < 500)
		outcome = HWT_DURABLE_FAIL;
	call_fail(
	    call, outcome, delay_ns, "status %ld%s%s", status, between, text);
}

/* There was no whole answer. Only if no address was left does it fail for
 * good. */
static void
call_broke(struct call *call, CURLcode code)
{
	const struct call_options *options = call->calls->options;

	if (call->refused > 0 && call->opened == 0)
		call_fail(call, HWT_DURABLE_FAIL, 0, "%s of %s is not allowed",
		    call->refused_address, call->target.host);
	else if (call->headers_long)
		call_fail(call, HWT_DURABLE_RETRY, HWT_NEVER,
		    "the answer's headers have more than %zu bytes",
		    options->headers_max);
	else
		call_fail(call, HWT_DURABLE_RETRY, HWT_NEVER, "%s",
		    call->error[0] != '\0' ? call->error
					   : curl_easy_strerror(code));
}

/* Hosts. */

static struct host_bucket *
bucket_of(struct calls *calls, const char *origin)
{
	uint32_t hash = 2166136261u;

	for (; *origin != '\0'; origin++)
		hash = (hash ^ (unsigned char)*origin) * 16777619u;
	return &calls->host[hash & (BUCKETS - 1)];
}

static struct host *
host_get(struct calls *calls, const char *origin)
{
	struct host_bucket *bucket = bucket_of(calls, origin);
	struct host *host;

	LIST_FOREACH(host, bucket, bucket)
	{
		if (strcmp(host->origin, origin) == 0)
			return host;
	}
	host = calloc(1, sizeof(*host));
	if (host == NULL)
		return NULL;
	(void)snprintf(host->origin, sizeof(host->origin), "%s", origin);
	TAILQ_INIT(&host->waiting);
	LIST_INSERT_HEAD(bucket, host, bucket);
	return host;
}

static uint32_t
host_limit(const struct calls *calls, const struct host *host)
{
	uint32_t most = calls->options->per_host;

	return host->reached || most < UNREACHED_MAX ? most : UNREACHED_MAX;
}

/* After a call of it has come or ended, or it was reached. */
static void
host_check(struct calls *calls, struct host *host)
{
	bool ready = !TAILQ_EMPTY(&host->waiting) &&
	    host->under_way < host_limit(calls, host);

	if (ready && !host->ready)
		TAILQ_INSERT_TAIL(&calls->ready, host, turn);
	if (!ready && host->ready)
		TAILQ_REMOVE(&calls->ready, host, turn);
	host->ready = ready;
	if (host->under_way == 0 && TAILQ_EMPTY(&host->waiting)) {
		LIST_REMOVE(host, bucket);
		free(host);
	}
}

/* What libcurl calls. */

static int
socket_wanted(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known)
{
	struct calls *calls = ctx;
	struct epoll_event event = {.data.fd = fd};

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		(void)epoll_ctl(calls->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		return 0;
	}
	if (what != CURL_POLL_OUT)
		event.events |= EPOLLIN;
	if (what != CURL_POLL_IN)
		event.events |= EPOLLOUT;
	(void)epoll_ctl(calls->epoll_fd,
	    known != NULL ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
	(void)curl_multi_assign(calls->multi, fd, calls);
	return 0;
}

static int
timer_wanted(CURLM *multi, long timeout_ms, void *ctx)
{
	struct calls *calls = ctx;

	(void)multi;
	calls->has_timer = timeout_ms >= 0;
	if (calls->has_timer)
		calls->timer_ms = wait_now_ms() + timeout_ms;
	return 0;
}

/* Whatever the name was resolved to, and for whichever request: here is the
 * address that will be connected to. A proxy is the user's own choice. */
static curl_socket_t
socket_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct call *call = ctx;
	const struct call_options *options = call->calls->options;
	const void *bytes = &address->addr;

	(void)purpose;
	if (!call->host->reached) {
		call->host->reached = true;
		host_check(call->calls, call->host);
	}
	if (options->proxy == NULL &&
	    !address_is_allowed(
		options->rules, call->target.host, &address->addr)) {
		bytes = address->family == AF_INET
		    ? (const void *)&((const struct sockaddr_in *)bytes)
			  ->sin_addr
		    : (const void *)&((const struct sockaddr_in6 *)bytes)
			  ->sin6_addr;
		(void)inet_ntop(address->family, bytes, call->refused_address,
		    sizeof(call->refused_address));
		call->refused++;
		return CURL_SOCKET_BAD;
	}
	call->opened++;
	return socket(address->family, address->socktype | SOCK_CLOEXEC,
	    address->protocol);
}

static size_t
header_came(char *text, size_t size, size_t count, void *ctx)
{
	struct call *call = ctx;

	/* An answer may have others before it, of status 1xx. */
	if (size * count >= 5 && memcmp(text, "HTTP/", 5) == 0)
		call->headers_whole = false;
	if (text[0] == '\r' || text[0] == '\n')
		call->headers_whole = true;
	call->header_bytes += size * count;
	call->headers_long =
	    call->header_bytes > call->calls->options->headers_max;
	return call->headers_long ? 0 : size * count;
}

/* Keeps the begin of the text, up to a byte 0. */
static size_t
body_came(char *text, size_t size, size_t count, void *ctx)
{
	struct call *call = ctx;
	size_t length = size * count, room, kept;

	if (call->answer_bytes < BEGIN_MAX - 1) {
		room = BEGIN_MAX - 1 - call->answer_bytes;
		kept = length < room ? length : room;
		memcpy(call->begin + call->answer_bytes, text, kept);
		call->begin[call->answer_bytes + kept] = '\0';
	}
	call->answer_bytes += length;
	call->answer_cut =
	    call->answer_bytes > call->calls->options->answer_max;
	return call->answer_cut ? 0 : length;
}

/* Calls that are under way. */

static void
method_set(const struct call *call)
{
	CURL *easy = call->easy;
	const char *method = call->method;
	bool sends = strcmp(method, "POST") == 0 ||
	    strcmp(method, "PUT") == 0 || strcmp(method, "PATCH") == 0;
	size_t length = call->body != NULL ? call->request.body_length : 0;

	if (strcmp(method, "HEAD") == 0)
		(void)curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
	else if (call->body != NULL || sends) {
		(void)curl_easy_setopt(
		    easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
		(void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS,
		    call->body != NULL ? call->body : "");
	}
	(void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
}

/* The proxy of the environment is not used. */
static void
network_set(struct call *call)
{
	const struct call_options *options = call->calls->options;
	CURL *easy = call->easy;

	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(
	    easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(
	    easy, CURLOPT_PROXY, options->proxy != NULL ? options->proxy : "");
	(void)curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
	if (options->ca_file != NULL)
		(void)curl_easy_setopt(easy, CURLOPT_CAINFO, options->ca_file);
	(void)curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, socket_open);
	(void)curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, call);
	(void)curl_easy_setopt(
	    easy, CURLOPT_CONNECTTIMEOUT_MS, (long)options->connect_ms);
	/* A look-up that hangs is left alone, and not waited for. */
	(void)curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
}

/* Another request for the same call, with what it has now. False: no memory.
 */
static bool
request_begin(struct call *call, const char *url, uint64_t limit_ms)
{
	CURL *easy = call->easy;

	call->opened = call->refused = 0;
	call->header_bytes = call->answer_bytes = 0;
	call->headers_whole = call->headers_long = call->answer_cut = false;
	call->begin[0] = call->error[0] = '\0';
	curl_slist_free_all(call->headers);
	call->headers = headers_make(&call->request, &call->sender,
	    call->calls->options->secrets, (uint64_t)time(NULL), call->body,
	    call->other);
	if (call->headers == NULL ||
	    curl_easy_setopt(easy, CURLOPT_URL, url) != CURLE_OK)
		return false;
	method_set(call);
	network_set(call);
	(void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
	(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)limit_ms);
	(void)curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
	(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error);
	(void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, header_came);
	(void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, body_came);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
	return curl_multi_add_handle(call->calls->multi, easy) == CURLM_OK;
}

static CURL *
easy_take(struct calls *calls)
{
	if (calls->idle_count > 0)
		return calls->idle[--calls->idle_count];
	return curl_easy_init();
}

static void
easy_release(struct calls *calls, CURL *easy)
{
	if (easy == NULL || calls->idle_count == EVENTS_MAX) {
		curl_easy_cleanup(easy);
		return;
	}
	curl_easy_reset(easy);
	calls->idle[calls->idle_count++] = easy;
}

/* It is over, and what has come of it is said. */
static void
call_end(struct call *call)
{
	struct calls *calls = call->calls;
	struct host *host = call->host;

	TAILQ_REMOVE(&calls->under_way, call, next);
	calls->count--;
	host->under_way--;
	easy_release(calls, call->easy);
	host_check(calls, host);
	call_free(call);
}

static void
call_begin(struct calls *calls, struct call *call)
{
	uint64_t limit_ms = calls->options->limit_ms;

	TAILQ_INSERT_TAIL(&calls->under_way, call, next);
	calls->count++;
	call->host->under_way++;
	if (call->request.timeout_ms != 0 &&
	    call->request.timeout_ms < limit_ms)
		limit_ms = call->request.timeout_ms;
	call->until_ms = wait_now_ms() + (int64_t)limit_ms;
	call->target = call->request.target;
	call->method = call->request.method;
	call->body = call->request.body;
	call->easy = easy_take(calls);
	if (call->easy != NULL &&
	    request_begin(call, call->request.url, limit_ms))
		return;
	call_fail(call, HWT_DURABLE_RETRY, HWT_NEVER, "no memory");
	call_end(call);
}

static void
calls_begin(struct calls *calls)
{
	struct host *host;
	struct call *call;

	while (calls->count < calls->options->concurrency &&
	    (host = TAILQ_FIRST(&calls->ready)) != NULL) {
		call = TAILQ_FIRST(&host->waiting);
		TAILQ_REMOVE(&host->waiting, call, next);
		TAILQ_REMOVE(&calls->ready, host, turn);
		host->ready = false;
		/* So that the host stays, whatever comes of the call. */
		host->under_way++;
		call_begin(calls, call);
		host->under_way--;
		host_check(calls, host);
	}
}

/* Redirects. */

/* After 303, and by custom after 301 and 302 of a POST, what is there is to be
 * read. */
static void
method_after(struct call *call, long status)
{
	bool is_head = strcmp(call->method, "HEAD") == 0;
	bool is_post = strcmp(call->method, "POST") == 0;

	if ((status == 303 && !is_head) ||
	    ((status == 301 || status == 302) && is_post)) {
		call->method = "GET";
		call->body = NULL;
	}
}

/* NULL: another request is under way; or why not. */
static const char *
call_redirect(struct call *call, long status, const char *url)
{
	struct target target;
	const char *wrong = target_read(&target, url);
	int64_t now = wait_now_ms();
	bool begun;
	char *copy;

	if (wrong != NULL)
		return wrong;
	if (call->redirects++ == call->calls->options->redirects)
		return "there are too many";
	if (call->target.secure && !target.secure)
		return "it leads from https to http";
	if (now >= call->until_ms)
		return "no time is left";
	call->other |= strcmp(target.origin, call->target.origin) != 0;
	call->target = target;
	method_after(call, status);
	copy = strdup(url); /* which is the handle's */
	if (copy == NULL)
		return "no memory";
	curl_easy_reset(call->easy);
	begun = request_begin(call, copy, (uint64_t)(call->until_ms - now));
	free(copy);
	return begun ? NULL : "no memory";
}

static bool
is_redirect(long status)
{
	return status == 301 || status == 302 || status == 303 ||
	    status == 307 || status == 308;
}

/* False: it goes on elsewhere. */
static bool
call_done(struct call *call, CURLcode code)
{
	const char *url = NULL, *wrong;
	long status = 0;

	call->host->reached = true;
	(void)curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
	if (code == CURLE_OK && !call->headers_whole) {
		call_fail(call, HWT_DURABLE_RETRY, HWT_NEVER,
		    "the answer ends within its headers");
		return true;
	}
	if (code != CURLE_OK && !call->answer_cut) {
		call_broke(call, code);
		return true;
	}
	if (is_redirect(status) && call->calls->options->redirects > 0)
		(void)curl_easy_getinfo(
		    call->easy, CURLINFO_REDIRECT_URL, &url);
	if (url == NULL) {
		call_answered(call, status);
		return true;
	}
	wrong = call_redirect(call, status, url);
	if (wrong == NULL)
		return false;
	call_fail(call, HWT_DURABLE_RETRY, HWT_NEVER,
	    "a redirect, status %ld, is not followed: %s", status, wrong);
	return true;
}

static void
calls_collect(struct calls *calls)
{
	CURLMsg *message;
	struct call *call;
	CURLcode code;
	char *private;
	int left;

	while ((message = curl_multi_info_read(calls->multi, &left)) != NULL) {
		if (message->msg != CURLMSG_DONE)
			continue;
		code = message->data.result;
		(void)curl_easy_getinfo(
		    message->easy_handle, CURLINFO_PRIVATE, &private);
		call = (struct call *)(void *)private;
		(void)curl_multi_remove_handle(calls->multi, call->easy);
		if (call_done(call, code))
			call_end(call);
		else
			host_check(calls, call->host);
	}
}

/* The thread. */

static void
release(struct call *call)
{
	(void)hwt_durable_finish(call->token, HWT_DURABLE_RELEASE, 0);
	call_free(call);
}

/* All that wait for their hosts. */
static void
waiting_release(struct calls *calls)
{
	struct host *host, *next;
	struct call *call;
	uint32_t i;

	for (i = 0; i < BUCKETS; i++) {
		for (host = LIST_FIRST(&calls->host[i]); host != NULL;
		     host = next) {
			next = LIST_NEXT(host, bucket);
			while ((call = TAILQ_FIRST(&host->waiting)) != NULL) {
				TAILQ_REMOVE(&host->waiting, call, next);
				release(call);
			}
			host_check(calls, host);
		}
	}
}

static void
inbox_take(struct calls *calls)
{
	struct call_list taken = TAILQ_HEAD_INITIALIZER(taken);
	struct call *call;
	bool releases;

	(void)pthread_mutex_lock(&calls->lock);
	TAILQ_CONCAT(&taken, &calls->inbox, next);
	releases = calls->releases;
	(void)pthread_mutex_unlock(&calls->lock);
	while ((call = TAILQ_FIRST(&taken)) != NULL) {
		TAILQ_REMOVE(&taken, call, next);
		call->host = host_get(calls, call->request.target.origin);
		if (call->host == NULL) {
			release(call);
			continue;
		}
		TAILQ_INSERT_TAIL(&call->host->waiting, call, next);
		host_check(calls, call->host);
	}
	if (releases)
		waiting_release(calls);
}

static int
wait_ms(const struct calls *calls)
{
	int64_t now = wait_now_ms();

	if (!calls->has_timer)
		return -1;
	return calls->timer_ms > now ? (int)(calls->timer_ms - now) : 0;
}

static void
event_handle(struct calls *calls, const struct epoll_event *event)
{
	int what = 0, running;
	uint64_t count;

	if (event->data.fd == calls->wake_fd) {
		(void)!read(calls->wake_fd, &count, sizeof(count));
		inbox_take(calls);
		return;
	}
	if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		what |= CURL_CSELECT_IN;
	if (event->events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	(void)curl_multi_socket_action(
	    calls->multi, event->data.fd, what, &running);
}

static void *
calls_run(void *arg)
{
	struct calls *calls = arg;
	struct epoll_event event[EVENTS_MAX];
	int count, i, running;

	(void)pthread_setname_np(pthread_self(), "hwt-calls");
	while (!calls->ended) {
		count = epoll_wait(
		    calls->epoll_fd, event, EVENTS_MAX, wait_ms(calls));
		for (i = 0; i < count; i++)
			event_handle(calls, &event[i]);
		if (calls->has_timer && wait_ms(calls) == 0) {
			calls->has_timer = false;
			(void)curl_multi_socket_action(
			    calls->multi, CURL_SOCKET_TIMEOUT, 0, &running);
		}
		calls_collect(calls);
		calls_begin(calls);
	}
	return NULL;
}

/* For callers. */

static struct call *
call_make(struct calls *calls, const struct hwt_durable_delivery *delivery,
    const struct request *request)
{
	struct call *call = calloc(1, sizeof(*call));

	if (call == NULL)
		return NULL;
	call->calls = calls;
	call->token = delivery->token;
	call->request = *request;
	sender_read(&call->sender, delivery);
	return call;
}

static void
refuse(const struct hwt_durable_delivery *delivery, const char *wrong)
{
	struct sender sender;

	sender_read(&sender, delivery);
	complain(
	    "%s: attempt %" PRIu32 ": %s", sender.id, sender.attempt, wrong);
	(void)hwt_durable_set_error(delivery, wrong, strlen(wrong));
}

int
calls_add(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct calls *calls = ctx;
	struct request request;
	struct call *call;
	char why[WHY_MAX];
	int outcome = request_read(
	    &request, delivery->payload, delivery->payload_length, why);
	bool first;

	if (outcome != 0) {
		refuse(delivery, why);
		return outcome;
	}
	call = call_make(calls, delivery, &request);
	if (call == NULL) {
		request_free(&request);
		return HWT_DURABLE_RETRY;
	}
	(void)pthread_mutex_lock(&calls->lock);
	first = TAILQ_EMPTY(&calls->inbox);
	TAILQ_INSERT_TAIL(&calls->inbox, call, next);
	(void)pthread_mutex_unlock(&calls->lock);
	if (first)
		calls_wake(calls);
	return HWT_DURABLE_LATER;
}

void
calls_release(void *ctx)
{
	struct calls *calls = ctx;

	(void)pthread_mutex_lock(&calls->lock);
	calls->releases = true;
	(void)pthread_mutex_unlock(&calls->lock);
	calls_wake(calls);
}

static bool
multi_make(struct calls *calls)
{
	CURLM *multi = calls->multi = curl_multi_init();
	/* Idle ones are closed before one more would be too many. As each call
	 * has one at most, none waits for another. */
	long most = (long)calls->options->concurrency;

	return multi != NULL &&
	    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, socket_wanted) ==
	    CURLM_OK &&
	    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, calls) == CURLM_OK &&
	    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, timer_wanted) ==
	    CURLM_OK &&
	    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, calls) == CURLM_OK &&
	    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, most) == CURLM_OK &&
	    curl_multi_setopt(multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, most) ==
	    CURLM_OK;
}

static int
thread_start(struct calls *calls)
{
	sigset_t all, before;
	int error;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&calls->thread, NULL, calls_run, calls);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static void
calls_free(struct calls *calls)
{
	while (calls->idle_count > 0)
		curl_easy_cleanup(calls->idle[--calls->idle_count]);
	(void)curl_multi_cleanup(calls->multi);
	if (calls->epoll_fd >= 0)
		(void)close(calls->epoll_fd);
	if (calls->wake_fd >= 0)
		(void)close(calls->wake_fd);
	(void)pthread_mutex_destroy(&calls->lock);
	free(calls);
	curl_global_cleanup();
}

int
calls_start(struct calls **started, const struct call_options *options)
{
	struct calls *calls = calloc(1, sizeof(*calls));
	struct epoll_event event = {.events = EPOLLIN};
	int error;

	if (calls == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != 0) {
		free(calls);
		return ENOMEM;
	}
	requests_init();
	calls->options = options;
	(void)pthread_mutex_init(&calls->lock, NULL);
	TAILQ_INIT(&calls->inbox);
	TAILQ_INIT(&calls->under_way);
	TAILQ_INIT(&calls->ready);
	calls->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	calls->wake_fd = event.data.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (calls->epoll_fd < 0 || calls->wake_fd < 0 ||
	    epoll_ctl(calls->epoll_fd, EPOLL_CTL_ADD, calls->wake_fd, &event) !=
		0)
		error = errno;
	else
		error = multi_make(calls) ? thread_start(calls) : ENOMEM;
	if (error != 0)
		calls_free(calls);
	else
		*started = calls;
	return error;
}

void
calls_end(struct calls *calls)
{
	struct call *call;

	calls->ended = true;
	calls_wake(calls);
	(void)pthread_join(calls->thread, NULL);
	inbox_take(calls);
	waiting_release(calls);
	while ((call = TAILQ_FIRST(&calls->under_way)) != NULL) {
		(void)curl_multi_remove_handle(calls->multi, call->easy);
		call_end(call);
	}
	calls_free(calls);
}
