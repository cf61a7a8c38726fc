/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hwt-http: a POST for each task. See man hwt-http (1).
 *
 * The worker's thread prepares calls and leaves their tasks open; the main
 * thread makes them, with curl_multi, and finishes the tasks. A job belongs to
 * the worker's thread until it is in http.arrived, and then to the main thread.
 *
 * One POST an attempt: each call has a connection of its own, since libcurl
 * sends again by itself if a connection that it kept turns out to be closed.
 * Nor does it send again after 417, as "Expect:" is not sent, or follow a
 * redirect; HTTP/2, where it does so after REFUSED_STREAM, is not used.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <curl/curl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
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
    "  --secret-file FILE     its first line signs the calls\n" WORKER_USAGE
	CLIENT_USAGE;

/* A task, and its call. */
struct job {
	struct job *next;
	struct hwt_durable_token token;
	uint32_t attempt, max_attempts;
	char id[ENCODED_SIZE(HWT_DURABLE_ID_MAX)];
	CURL *curl;
	struct curl_slist *headers;
	bool no_memory; /* for its headers */
	size_t answer_length; /* that was kept */
	size_t answer_read;
	char answer[ANSWER_KEPT + 1];
	char payload[]; /* and a NUL */
};

static struct {
	size_t allowed_count;
	char *allowed[ALLOWED_MAX]; /* as read_url gives them */
	char secret[SECRET_SIZE];
	uint64_t calls, limit_ns;
	CURLM *multi;
	struct job *active; /* of the main thread */
	pthread_mutex_t lock;
	struct job *arrived; /* under the lock */
} http = {
    .calls = 64,
    .limit_ns = HWT_SEC(30),
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

/*
 * URLs.
 */

/* scheme://host:PORT/PATH and a query, if there is one, without "." and ".." in
 * the path; NULL: it is none of http, or has a user or a fragment. The parser
 * is that of the call. curl_free. */
static char *
read_url(const char *text)
{
	static const CURLUPart refused[] = {
	    CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_FRAGMENT};
	CURLU *url = curl_url();
	char *part = NULL, *whole = NULL, *at;
	size_t i;

	if (url == NULL || curl_url_set(url, CURLUPART_URL, text, 0) != 0 ||
	    curl_url_get(url, CURLUPART_URL, &whole, CURLU_DEFAULT_PORT) != 0)
		whole = NULL;
	for (i = 0; i < sizeof(refused) / sizeof(*refused) && !part; i++)
		(void)curl_url_get(url, refused[i], &part, 0);
	curl_url_cleanup(url);
	if (whole == NULL || part != NULL ||
	    (strncmp(whole, "http://", 7) != 0 &&
		strncmp(whole, "https://", 8) != 0)) {
		curl_free(part);
		curl_free(whole);
		return NULL;
	}
	for (at = strstr(whole, "://") + 3; *at != '/'; at++)
		*at = (char)tolower((unsigned char)*at);
	return whole;
}

/* Its path has nothing that a server could take for a dot, a slash or a
 * backslash. */
static bool
is_plain(const char *url)
{
	const char *end = url + strcspn(url, "?");

	for (; url < end; url++) {
		if (*url == '\\' || strncasecmp(url, "%2e", 3) == 0 ||
		    strncasecmp(url, "%2f", 3) == 0 ||
		    strncasecmp(url, "%5c", 3) == 0)
			return false;
	}
	return true;
}

/* Whole segments: /hook allows /hook and /hook/1, not /hooks. A path that is
 * not plain is under the root alone. */
static bool
is_allowed(const char *url)
{
	const char *prefix;
	size_t i, length;

	for (i = 0; i < http.allowed_count; i++) {
		prefix = http.allowed[i];
		length = strlen(prefix);
		if (strncmp(url, prefix, length) == 0 &&
		    (prefix[length - 1] == '/' ||
			strchr("/?", url[length]) != NULL) &&
		    (is_plain(url) ||
			strchr(strstr(prefix, "://") + 3, '/')[1] == '\0'))
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
	line += length + 1;
	/* libcurl drops a header without a value. */
	if (line[strspn(line, " \t")] == '\0')
		return false;
	while ((unsigned char)*line >= ' ' || *line == '\t')
		line++;
	return *line == '\0';
}

static void
add_header(struct job *job, const char *line)
{
	struct curl_slist *list = curl_slist_append(job->headers, line);

	job->no_memory |= list == NULL;
	if (list != NULL)
		job->headers = list;
}

/* Of Standard Webhooks: "v1," and the base64 of HMAC-SHA256 of
 * ID.TIME.BODY. */
static void
add_signature(
    struct job *job, long long now, const char *body, size_t body_length)
{
	unsigned char mac[EVP_MAX_MD_SIZE], encoded[2 * EVP_MAX_MD_SIZE];
	size_t head, room = sizeof(job->id) + 24 + body_length;
	char line[sizeof(encoded) + 32], *text = malloc(room);
	unsigned int mac_length = 0;

	job->no_memory |= text == NULL;
	if (text == NULL)
		return;
	head = (size_t)snprintf(text, room, "%s.%lld.", job->id, now);
	memcpy(text + head, body, body_length);
	(void)HMAC(EVP_sha256(), http.secret, (int)strlen(http.secret),
	    (const unsigned char *)text, head + body_length, mac, &mac_length);
	free(text);
	(void)EVP_EncodeBlock(encoded, mac, (int)mac_length);
	(void)snprintf(line, sizeof(line), "Webhook-Signature: v1,%s", encoded);
	add_header(job, line);
}

static void
add_own_headers(struct job *job, const struct hwt_durable_delivery *delivery,
    const char *body, size_t body_length)
{
	const long long now = time(NULL);
	char text[sizeof(job->id) + 160], *line, *at = text;
	int length = snprintf(text, sizeof(text),
	    "Webhook-Id: %s\nWebhook-Timestamp: %lld\nHwt-Attempt: %u\n"
	    "Hwt-Due: %llu\nExpect:",
	    job->id, now, job->attempt,
	    (unsigned long long)(delivery->due_unix_ns / HWT_MS(1)));

	while ((line = take_line(&at, text + length)) != NULL)
		add_header(job, line);
	if (http.secret[0] != '\0')
		add_signature(job, now, body, body_length);
}

/* NULL, or why it is no call that is allowed. */
static const char *
read_payload(struct job *job, const struct hwt_durable_delivery *delivery)
{
	char *at = job->payload, *end = at + delivery->payload_length;
	char *line = take_line(&at, end);
	char *url = line != NULL ? read_url(line) : NULL;
	bool allowed = url != NULL && is_allowed(url);

	if (url == NULL)
		return "the payload does not begin with a URL of http or https";
	curl_easy_setopt(job->curl, CURLOPT_URL, url);
	curl_free(url);
	if (!allowed)
		return "the URL begins with none that is allowed";
	while ((line = take_line(&at, end)) != NULL && *line != '\0') {
		if (!header_is_right(line))
			return "the payload has a header that is not allowed";
		add_header(job, line);
	}
	if (line == NULL && at < end)
		return "the payload has a NUL in its headers";
	add_own_headers(job, delivery, at, (size_t)(end - at));
	curl_easy_setopt(job->curl, CURLOPT_HTTPHEADER, job->headers);
	curl_easy_setopt(job->curl, CURLOPT_POSTFIELDS, at);
	curl_easy_setopt(
	    job->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)(end - at));
	return NULL;
}

/*
 * Calls.
 */

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
set_options(CURL *curl, struct job *job)
{
	curl_easy_setopt(curl, CURLOPT_PRIVATE, job);
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
}

static void
job_free(struct job *job)
{
	curl_easy_cleanup(job->curl);
	curl_slist_free_all(job->headers);
	free(job);
}

/* On the worker's thread. */
static int
receive(void *ctx, const struct hwt_durable_delivery *delivery)
{
	struct job *job =
	    calloc(1, sizeof(*job) + delivery->payload_length + 1);
	CURL *curl = job != NULL ? curl_easy_init() : NULL;
	int outcome = HWT_DURABLE_FAIL;
	const char *wrong;

	(void)ctx;
	if (curl == NULL) {
		free(job);
		return HWT_DURABLE_RETRY;
	}
	job->curl = curl;
	job->token = delivery->token;
	job->attempt = delivery->attempt;
	job->max_attempts = delivery->max_attempts;
	if (delivery->payload_length > 0)
		memcpy(
		    job->payload, delivery->payload, delivery->payload_length);
	encode(job->id, delivery->id, delivery->id_length);
	set_options(curl, job);
	wrong = read_payload(job, delivery);
	if (wrong == NULL && job->no_memory)
		outcome = HWT_DURABLE_RETRY, wrong = "no memory";
	if (wrong != NULL) {
		(void)strcpy(delivery->reason, wrong);
		outcome = program_failed(
		    job->id, job->attempt, job->max_attempts, outcome, wrong);
		job_free(job);
		return outcome;
	}
	(void)pthread_mutex_lock(&http.lock);
	job->next = http.arrived;
	http.arrived = job;
	(void)pthread_mutex_unlock(&http.lock);
	(void)curl_multi_wakeup(http.multi);
	return HWT_DURABLE_LATER;
}

/* Ends the attempt of an active job, and frees that. */
static void
job_end(struct job *job, int outcome, uint64_t delay_ns, const char *reason)
{
	struct job **link = &http.active;

	if (outcome != 0)
		outcome = program_failed(
		    job->id, job->attempt, job->max_attempts, outcome, reason);
	(void)hwt_durable_finish(job->token, outcome, delay_ns, reason);
	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	(void)curl_multi_remove_handle(http.multi, job->curl);
	job_free(job);
}

static void
start_jobs(void)
{
	struct job *job, *next;

	(void)pthread_mutex_lock(&http.lock);
	job = http.arrived;
	http.arrived = NULL;
	(void)pthread_mutex_unlock(&http.lock);
	for (; job != NULL; job = next) {
		next = job->next;
		job->next = http.active;
		http.active = job;
		(void)curl_multi_add_handle(http.multi, job->curl);
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

/* One turn: waits, and does what there is. True: a signal came. */
static bool
turn(int signals, int wait_ms)
{
	struct curl_waitfd also = {.fd = signals, .events = CURL_WAIT_POLLIN};
	struct signalfd_siginfo ignored;
	struct CURLMsg *message;
	struct job *job;
	int left;

	(void)curl_multi_poll(http.multi, &also, 1, wait_ms, NULL);
	start_jobs();
	(void)curl_multi_perform(http.multi, &left);
	while ((message = curl_multi_info_read(http.multi, &left)) != NULL) {
		(void)curl_easy_getinfo(
		    message->easy_handle, CURLINFO_PRIVATE, (char **)&job);
		job_answered(job, message->data.result);
	}
	return also.revents != 0 &&
	    read(signals, &ignored, sizeof(ignored)) > 0;
}

/* Until a signal; then until all calls have ended, or are broken off. */
static int
serve(int signals)
{
	uint64_t end_ns;

	while (!turn(signals, 1000))
		;
	end_ns = clock_steady_ns() + program.grace_ns;
	while (hwt_durable_worker_stop(program.worker, 0) != 0) {
		if (clock_steady_ns() >= end_ns + HWT_SEC(5))
			return STATUS_SERVER;
		while (clock_steady_ns() >= end_ns && http.active != NULL)
			job_end(http.active, HWT_DURABLE_RETRY, HWT_NEVER,
			    "broken off, since hwt-http ends");
		(void)turn(signals, 20);
	}
	return hwt_durable_close(program.durable) == 0 ? 0 : STATUS_SERVER;
}

static void
read_key(const char *path)
{
	read_first_line(path, http.secret, sizeof(http.secret));
}

static const struct program_option options[] = {
    {"allow", .read = add_allowed},
    {"calls", .number = &http.calls, .least = 1, .most = CALLS_MAX},
    {"limit", .time = &http.limit_ns},
    {"secret-file", .read = read_key},
    {.name = NULL},
};

struct program program = {
    .name = "hwt-http",
    .usage = usage,
    .options = {options, worker_options, client_options},
    .work.callback = receive,
    .grace_ns = HWT_SEC(30),
};

int
main(int argc, char **argv)
{
	(void)curl_global_init(CURL_GLOBAL_ALL);
	if (program_parse(argc, argv) != argc || program.work.queue == NULL ||
	    http.allowed_count == 0)
		program_usage();
	http.multi = curl_multi_init();
	program.work.outstanding_max = http.calls;
	return serve(program_start());
}
