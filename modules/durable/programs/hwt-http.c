/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt-http: a POST for each task. See man hwt-http (1).
 *
 * One thread of a worker copies tasks into a list and leaves them open; the
 * main thread makes the calls, with curl_multi, and finishes them. A task is
 * owned by whoever has taken it off the list.
 *
 * One POST an attempt: each call has a connection of its own, since libcurl
 * sends again by itself if a connection that it kept turns out to be closed.
 * Nor does it send again after 417, as "Expect:" is not sent, or follow a
 * redirect; HTTP/2, where it does so after REFUSED_STREAM, is not used.
 */
#define _GNU_SOURCE
#include <curl/curl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "modules/durable/clock.h"
#include "modules/durable/programs/program.h"

#define ALLOWED_MAX 64
#define CALLS_MAX 4096
#define ANSWER_KEPT 200 /* bytes, for the reason of a dead letter */
#define ANSWER_MAX 1048576 /* bytes that are read */
#define RETRY_AFTER_MAX 86400 /* seconds */
#define SECRET_SIZE 514

static const char usage[] =
    "usage: hwt-http --queue Q[,Q...] --allow URL [--allow URL]... "
    "[OPTION...]\n"
    "  --allow URL            a prefix of URLs that may be called\n"
    "  --calls N              at a time (64)\n"
    "  --limit TIME           of a call (30s)\n"
    "  --secret-file FILE     its first line signs the calls\n"
    "  --ca-file FILE         of those who certify servers\n" WORKER_USAGE
	CLIENT_USAGE;

/* A task, and its call. */
struct job {
	struct job *next;
	struct hwt_durable_token token;
	uint32_t attempt, max_attempts;
	uint64_t due_ms;
	char id[ENCODED_SIZE(HWT_DURABLE_ID_MAX)];
	CURL *curl;
	char *url;
	struct curl_slist *headers;
	const char *body; /* in the payload */
	size_t body_length;
	size_t answer_length; /* that was kept */
	size_t answer_read;
	char answer[ANSWER_KEPT + 1];
	size_t payload_length;
	char payload[]; /* and a NUL */
};

static struct {
	size_t allowed_count;
	char *allowed[ALLOWED_MAX]; /* as read_url gives them */
	const char *ca_file;
	char secret[SECRET_SIZE];
	uint64_t calls, limit_ns;
	CURLM *multi;
	struct job *active;
	pthread_mutex_t lock;
	struct job *first, **last; /* under the lock */
} http = {
    .calls = 64,
    .limit_ns = HWT_SEC(30),
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .last = &http.first,
};

struct program program = {.name = "hwt-http", .usage = usage};

/*
 * URLs.
 */

/* SCHEME://HOST:PORT/PATH and a query, if there is one, without "." and ".." in
 * the path; NULL: it is none of http, or has a user or a fragment. The parser
 * is that of the call. curl_free. */
static char *
read_url(const char *text)
{
	static const CURLUPart refused[] = {
	    CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT};
	CURLU *url = curl_url();
	char *part = NULL, *whole = NULL;
	size_t i;

	if (url == NULL || curl_url_set(url, CURLUPART_URL, text, 0) != 0 ||
	    curl_url_get(url, CURLUPART_URL, &whole, CURLU_DEFAULT_PORT) != 0)
		whole = NULL;
	for (i = 0; i < sizeof(refused) / sizeof(*refused) && !part; i++)
		(void)curl_url_get(url, refused[i], &part, 0);
	curl_url_cleanup(url);
	if (whole != NULL && part == NULL &&
	    (strncmp(whole, "http://", 7) == 0 ||
		strncmp(whole, "https://", 8) == 0))
		return whole;
	curl_free(part);
	curl_free(whole);
	return NULL;
}

static const char *
path_of(const char *url)
{
	return strchr(strstr(url, "://") + 3, '/');
}

/* What a server could take for a dot, a slash or a backslash. */
static bool
path_is_plain(const char *path)
{
	const char *end = path + strcspn(path, "?");

	for (; path < end; path++) {
		if (*path == '\\' || strncasecmp(path, "%2e", 3) == 0 ||
		    strncasecmp(path, "%2f", 3) == 0 ||
		    strncasecmp(path, "%5c", 3) == 0)
			return false;
	}
	return true;
}

/* Whole segments: /hook allows /hook and /hook/1, not /hooks. A path that is
 * not plain is under the root alone. */
static bool
is_allowed(const char *url)
{
	const char *path = path_of(url), *prefix;
	size_t i, length, origin = (size_t)(path - url);

	for (i = 0; i < http.allowed_count; i++) {
		prefix = path_of(http.allowed[i]);
		length = strlen(prefix);
		if ((size_t)(prefix - http.allowed[i]) != origin ||
		    strncasecmp(url, http.allowed[i], origin) != 0 ||
		    strncmp(path, prefix, length) != 0)
			continue;
		if (length == 1 ||
		    (path_is_plain(path) &&
			(prefix[length - 1] == '/' ||
			    strchr("/?", path[length]) != NULL)))
			return true;
	}
	return false;
}

static void
add_allowed(const char *text)
{
	char *url = http.allowed_count < ALLOWED_MAX ? read_url(text) : NULL;

	if (url == NULL || strchr(url, '?') != NULL)
		program_fail(STATUS_USAGE,
		    "'%s' is not a URL of http or https without user, query "
		    "and fragment, or there are more than %d",
		    text, ALLOWED_MAX);
	http.allowed[http.allowed_count++] = url;
}

/*
 * Payloads: a URL, lines of headers as "Name: value", an empty line, and the
 * body; each line ends with LF or CRLF.
 */

/* The next line, which then ends with a NUL; NULL: there is none. */
static char *
take_line(char **at, char *end)
{
	char *line = *at;
	char *feed =
	    line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;

	if (line >= end)
		return NULL;
	*at = feed != NULL ? feed + 1 : end;
	if (feed == NULL)
		feed = end;
	if (feed > line && feed[-1] == '\r')
		feed--;
	*feed = '\0';
	return strlen(line) == (size_t)(feed - line) ? line : NULL;
}

/* A header of the caller: none that changes what is a request, or that is
 * ours. Those that end with - are prefixes. */
static bool
header_is_right(const char *line)
{
	static const char *const refused[] = {"Host:", "Content-Length:",
	    "Transfer-Encoding:", "Connection:", "Expect:", "Upgrade:", "TE:",
	    "Trailer:", "Webhook-", "Hwt-", "Proxy-"};
	const char token[] = "!#$%&'*+-.^_`|~0123456789"
			     "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
			     "abcdefghijklmnopqrstuvwxyz";
	size_t i, length = strspn(line, token);

	if (length == 0 || line[length] != ':')
		return false;
	for (i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		if (strncasecmp(line, refused[i], strlen(refused[i])) == 0)
			return false;
	}
	for (line += length; *line != '\0'; line++) {
		if ((unsigned char)*line < ' ' && *line != '\t')
			return false;
	}
	/* libcurl drops a header that ends with its colon. */
	return line[-1] != ':';
}

/* False: no memory. */
static bool __attribute__((format(printf, 2, 3)))
add_header(struct job *job, const char *format, ...)
{
	struct curl_slist *list;
	va_list arguments;
	char *line;
	int length;

	va_start(arguments, format);
	length = vasprintf(&line, format, arguments);
	va_end(arguments);
	if (length < 0)
		return false;
	list = curl_slist_append(job->headers, line);
	free(line);
	if (list != NULL)
		job->headers = list;
	return list != NULL;
}

/* NULL, or why it is no call that is allowed. */
static const char *
read_payload(struct job *job)
{
	char *line, *at = job->payload, *end = at + job->payload_length;

	line = take_line(&at, end);
	job->url = line != NULL ? read_url(line) : NULL;
	if (job->url == NULL)
		return "the payload does not begin with a URL of http or https";
	if (!is_allowed(job->url))
		return "the URL begins with none that is allowed";
	while ((line = take_line(&at, end)) != NULL && *line != '\0') {
		if (!header_is_right(line) || !add_header(job, "%s", line))
			return "the payload has a header that is not allowed";
	}
	if (line == NULL && at < end)
		return "the payload has a NUL in its headers";
	job->body = at;
	job->body_length = (size_t)(end - at);
	return NULL;
}

/* Of Standard Webhooks: "v1," and the base64 of HMAC-SHA256 of
 * ID.TIME.BODY. */
static bool
add_signature(struct job *job, long long now)
{
	unsigned char mac[EVP_MAX_MD_SIZE], encoded[2 * EVP_MAX_MD_SIZE];
	size_t room = sizeof(job->id) + 24 + job->body_length, head;
	unsigned int mac_length = 0;
	char *text = malloc(room);

	if (text == NULL)
		return false;
	head = (size_t)snprintf(text, room, "%s.%lld.", job->id, now);
	memcpy(text + head, job->body, job->body_length);
	(void)HMAC(EVP_sha256(), http.secret, (int)strlen(http.secret),
	    (const unsigned char *)text, head + job->body_length, mac,
	    &mac_length);
	free(text);
	(void)EVP_EncodeBlock(encoded, mac, (int)mac_length);
	return mac_length > 0 &&
	    add_header(job, "Webhook-Signature: v1,%s", (char *)encoded);
}

/*
 * Calls.
 */

/* On the worker's thread. */
static int
receive(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct job *job =
	    calloc(1, sizeof(*job) + delivery->payload_length + 1);

	(void)ctx;
	if (job == NULL)
		return HWT_DURABLE_RETRY;
	job->token = delivery->token;
	job->attempt = delivery->attempt;
	job->max_attempts = delivery->max_attempts;
	job->due_ms = delivery->due_unix_ns / HWT_MS(1);
	job->payload_length = delivery->payload_length;
	if (delivery->payload_length > 0)
		memcpy(
		    job->payload, delivery->payload, delivery->payload_length);
	encode(job->id, delivery->id, delivery->id_length);
	(void)pthread_mutex_lock(&http.lock);
	*http.last = job;
	http.last = &job->next;
	(void)pthread_mutex_unlock(&http.lock);
	(void)curl_multi_wakeup(http.multi);
	return HWT_DURABLE_LATER;
}

/* Ends the attempt, and frees the job. */
static void
job_end(struct job *job, int outcome, uint64_t delay_ns, const char *reason)
{
	struct job **link = &http.active;

	if (outcome != 0)
		(void)fprintf(stderr, "hwt-http: %s: attempt %u: %s\n", job->id,
		    job->attempt, reason);
	/* So that the dead letter has the reason. */
	if (outcome == HWT_DURABLE_RETRY && job->attempt >= job->max_attempts)
		outcome = HWT_DURABLE_FAIL;
	(void)hwt_durable_finish(job->token, outcome, delay_ns, reason);
	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	if (job->curl != NULL) {
		(void)curl_multi_remove_handle(http.multi, job->curl);
		curl_easy_cleanup(job->curl);
	}
	curl_slist_free_all(job->headers);
	curl_free(job->url);
	free(job);
}

static size_t
read_answer(char *bytes, size_t size, size_t count, void *ctx)
{
	struct job *job = ctx;
	size_t length = size * count, kept = length;

	if (kept > ANSWER_KEPT - job->answer_length)
		kept = ANSWER_KEPT - job->answer_length;
	memcpy(job->answer + job->answer_length, bytes, kept);
	job->answer_length += kept;
	job->answer_read += length;
	return job->answer_read > ANSWER_MAX ? 0 : length;
}

static void
set_options(struct job *job)
{
	CURL *curl = job->curl;

	curl_easy_setopt(curl, CURLOPT_PRIVATE, job);
	curl_easy_setopt(curl, CURLOPT_URL, job->url);
	curl_easy_setopt(curl, CURLOPT_POSTFIELDS, job->body);
	curl_easy_setopt(
	    curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)job->body_length);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, job->headers);
	curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
	curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(
	    curl, CURLOPT_TIMEOUT_MS, (long)(http.limit_ns / HWT_MS(1)));
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, read_answer);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, job);
	if (http.ca_file != NULL)
		curl_easy_setopt(curl, CURLOPT_CAINFO, http.ca_file);
}

static void
job_start(struct job *job)
{
	const char *wrong = read_payload(job);
	long long now = time(NULL);

	job->next = http.active;
	http.active = job;
	if (wrong != NULL) {
		job_end(job, HWT_DURABLE_FAIL, 0, wrong);
		return;
	}
	job->curl = curl_easy_init();
	if (job->curl == NULL || !add_header(job, "Webhook-Id: %s", job->id) ||
	    !add_header(job, "Webhook-Timestamp: %lld", now) ||
	    !add_header(job, "Hwt-Attempt: %u", job->attempt) ||
	    !add_header(
		job, "Hwt-Due: %llu", (unsigned long long)job->due_ms) ||
	    !add_header(job, "Expect:") ||
	    (http.secret[0] != '\0' && !add_signature(job, now))) {
		job_end(job, HWT_DURABLE_RETRY, HWT_NEVER, "no memory");
		return;
	}
	set_options(job);
	(void)curl_multi_add_handle(http.multi, job->curl);
}

static void
start_jobs(void)
{
	struct job *job, *next;

	(void)pthread_mutex_lock(&http.lock);
	job = http.first;
	http.first = NULL;
	http.last = &http.first;
	(void)pthread_mutex_unlock(&http.lock);
	for (; job != NULL; job = next) {
		next = job->next;
		job_start(job);
	}
}

/* 2xx is done. What may pass is tried again: no answer, 408, 425, 429 and 5xx.
 * All others are dead letters, a redirect too. */
static void
job_answered(struct job *job, CURLcode error)
{
	char reason[ANSWER_KEPT + 64];
	curl_off_t after = 0;
	long status = 0;

	(void)curl_easy_getinfo(job->curl, CURLINFO_RESPONSE_CODE, &status);
	(void)curl_easy_getinfo(job->curl, CURLINFO_RETRY_AFTER, &after);
	/* Of a body that is too long, the status counts. */
	if (error != CURLE_OK && job->answer_read <= ANSWER_MAX) {
		job_end(job, HWT_DURABLE_RETRY, HWT_NEVER,
		    curl_easy_strerror(error));
		return;
	}
	if (after > RETRY_AFTER_MAX)
		after = RETRY_AFTER_MAX;
	(void)snprintf(reason, sizeof(reason), "%ld%s %s", status,
	    status / 100 == 3 ? ", and redirects are not followed" : "",
	    job->answer);
	if (status / 100 == 2)
		job_end(job, 0, 0, NULL);
	else if (status / 100 == 5 || status == 408 || status == 425 ||
	    status == 429)
		job_end(job, HWT_DURABLE_RETRY,
		    after > 0 ? HWT_SEC((uint64_t)after) : HWT_NEVER, reason);
	else
		job_end(job, HWT_DURABLE_FAIL, 0, reason);
}

/* One turn: waits, for up to a second, and does what there is. True: a signal
 * came. */
static bool
turn(int signals)
{
	struct curl_waitfd also = {.fd = signals, .events = CURL_WAIT_POLLIN};
	struct signalfd_siginfo ignored;
	struct CURLMsg *message;
	struct job *job;
	int left;

	(void)curl_multi_poll(http.multi, &also, 1, 1000, NULL);
	start_jobs();
	(void)curl_multi_perform(http.multi, &left);
	while ((message = curl_multi_info_read(http.multi, &left)) != NULL) {
		(void)curl_easy_getinfo(
		    message->easy_handle, CURLINFO_PRIVATE, (char **)&job);
		job_answered(job, message->data.result);
	}
	return read(signals, &ignored, sizeof(ignored)) > 0;
}

/* Until a signal; then until all calls have ended, or are broken off. */
static int
serve(const struct program_worker *worker)
{
	uint64_t end_ns;

	while (!turn(worker->signals))
		;
	end_ns = clock_steady_ns() + worker->grace_ns;
	while (hwt_durable_worker_stop(worker->worker, 0) != 0) {
		if (clock_steady_ns() >= end_ns + HWT_SEC(5))
			return STATUS_SERVER;
		while (clock_steady_ns() >= end_ns && http.active != NULL)
			job_end(http.active, HWT_DURABLE_RETRY, HWT_NEVER,
			    "broken off, since hwt-http ends");
		(void)turn(worker->signals);
	}
	return 0;
}

static void
read_key(const char *path)
{
	read_secret(path, http.secret, sizeof(http.secret));
}

int
main(int argc, char **argv)
{
	static struct program_worker worker = {
	    .options.callback = receive, .grace_ns = HWT_SEC(30)};
	static const struct program_option own[] = {
	    WORKER_OPTIONS(worker),
	    {"allow", .read = add_allowed},
	    {"calls", .number = &http.calls, .least = 1, .most = CALLS_MAX},
	    {"limit", .time = &http.limit_ns},
	    {"secret-file", .read = read_key},
	    {"ca-file", .text = &http.ca_file},
	    {.name = NULL},
	};
	int status;

	(void)curl_global_init(CURL_GLOBAL_ALL);
	if (program_parse(own, client_options, argc, argv) != argc ||
	    worker.options.queue == NULL || http.allowed_count == 0)
		program_usage();
	http.multi = curl_multi_init();
	worker.options.outstanding_max = http.calls;
	program_start(&worker);
	status = serve(&worker);
	if (status == 0)
		(void)hwt_durable_close(worker.durable);
	return status;
}
