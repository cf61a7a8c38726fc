/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "hwt-http-request.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options.h"
#include "text.h"

#define SECRET_MIN 16 /* bytes */
#define DIGEST_LENGTH 32
#define SIGNATURE_MAX 48 /* "v1," and base64 of a digest, and the 0 */
#define TIMEOUT_MAX 86400.0 /* seconds that make a difference */

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"

/* No memory: in jansson, which takes some of it for bad syntax, and in libcurl.
 * Nothing is said then of what was being read. */
static _Thread_local bool memory_was_short;

static void *
json_malloc(size_t size)
{
	void *memory = malloc(size);

	memory_was_short |= memory == NULL;
	return memory;
}

void
requests_init(void)
{
	json_set_alloc_funcs(json_malloc, free);
}

/* The URL. */

static const char *
url_error(CURLUcode code)
{
	memory_was_short |= code == CURLUE_OUT_OF_MEMORY;
	return curl_url_strerror(code);
}

static const char *
part_read(CURLU *url, CURLUPart part, unsigned flags, char *text, size_t size)
{
	char *got;
	CURLUcode code = curl_url_get(url, part, &got, flags);
	size_t length, i;

	if (code != CURLUE_OK)
		return url_error(code);
	length = strlen(got);
	for (i = 0; i <= length && i < size; i++)
		text[i] = (char)tolower((unsigned char)got[i]);
	curl_free(got);
	if (length >= size)
		return "a name is too long";
	return NULL;
}

/* A name that is not ASCII would be another one when it is looked up. */
static const char *
parts_read(struct target *target, CURLU *url)
{
	char scheme[8], port[8];
	const char *wrong, *at;

	wrong = part_read(url, CURLUPART_SCHEME, 0, scheme, sizeof(scheme));
	if (wrong == NULL)
		wrong = part_read(
		    url, CURLUPART_HOST, 0, target->host, sizeof(target->host));
	if (wrong == NULL)
		wrong = part_read(url, CURLUPART_PORT, CURLU_DEFAULT_PORT, port,
		    sizeof(port));
	if (wrong != NULL)
		return wrong;
	for (at = target->host; *at != '\0'; at++) {
		if (!isgraph((unsigned char)*at))
			return "its host is not ASCII: write it as xn--...";
	}
	target->secure = strcmp(scheme, "https") == 0;
	if (!target->secure && strcmp(scheme, "http") != 0)
		return "its scheme is neither http nor https";
	(void)snprintf(target->origin, sizeof(target->origin), "%s://%s:%s",
	    scheme, target->host, port);
	return NULL;
}

const char *
target_read(struct target *target, const char *url)
{
	CURLU *parts = curl_url();
	const char *wrong;
	CURLUcode code;

	if (parts == NULL)
		return url_error(CURLUE_OUT_OF_MEMORY);
	code = curl_url_set(parts, CURLUPART_URL, url, 0);
	wrong = code == CURLUE_OK ? parts_read(target, parts) : url_error(code);
	curl_url_cleanup(parts);
	return wrong;
}

/* The payload. */

/* What the connection needs for itself, or we say of the task. */
static bool
is_ours(const char *name)
{
	static const char *const names[] = {"connection", "content-length",
	    "expect", "host", "keep-alive", "te", "trailer",
	    "transfer-encoding", "upgrade"};
	static const char *const begins[] = {"hwt-", "proxy-", "webhook-"};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(name, names[i]) == 0)
			return true;
	}
	for (i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		if (strncasecmp(name, begins[i], strlen(begins[i])) == 0)
			return true;
	}
	return false;
}

static bool
is_header_name(const char *name)
{
	return name[0] != '\0' &&
	    name[strspn(name, LETTERS DIGITS "!#$%&'*+-.^_`|~")] == '\0';
}

static bool
is_header_text(const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text != '\t' && iscntrl((unsigned char)*text))
			return false;
	}
	return true;
}

static const char *
headers_check(json_t *headers)
{
	const char *name;
	json_t *value;

	if (headers != NULL && !json_is_object(headers))
		return "headers: want an object";
	json_object_foreach(headers, name, value)
	{
		if (!json_is_string(value))
			return "headers: want texts";
		if (!is_header_name(name))
			return "headers: a name that is none";
		if (is_ours(name))
			return "headers: one that a task cannot set";
		if (!is_header_text(json_string_value(value)))
			return "headers: a control character";
	}
	return NULL;
}

static bool
is_method(const char *method)
{
	static const char *const methods[] = {
	    "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"};
	size_t i;

	for (i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		if (strcmp(method, methods[i]) == 0)
			return true;
	}
	return false;
}

static const char *
timeout_read(struct request *request, json_t *timeout)
{
	double seconds;

	if (timeout == NULL)
		return NULL;
	if (!json_is_number(timeout) || !(json_number_value(timeout) > 0))
		return "timeout: want seconds, more than 0";
	seconds = json_number_value(timeout);
	if (seconds > TIMEOUT_MAX)
		seconds = TIMEOUT_MAX;
	request->timeout_ms = (uint64_t)(seconds * 1000);
	request->timeout_ms += (double)request->timeout_ms < seconds * 1000;
	return NULL;
}

/* The members' values, which the JSON has with the right types. */
static const char *
members_check(struct request *request, json_t *timeout, char why[WHY_MAX])
{
	const char *wrong;

	if (!is_method(request->method))
		return "method: want GET, HEAD, POST, PUT, PATCH, DELETE or "
		       "OPTIONS";
	if (request->body != NULL && strcmp(request->method, "HEAD") == 0)
		return "body: there is none with HEAD";
	wrong = headers_check(request->headers);
	if (wrong == NULL)
		wrong = timeout_read(request, timeout);
	if (wrong != NULL)
		return wrong;
	wrong = target_read(&request->target, request->url);
	if (wrong == NULL)
		return NULL;
	(void)snprintf(why, WHY_MAX, "url: %s", wrong);
	return why;
}

int
request_read(struct request *request, const char *payload, size_t length,
    char why[WHY_MAX])
{
	json_t *timeout = NULL;
	json_error_t error;
	const char *wrong;

	memory_was_short = false;
	*request = (struct request){.method = "POST"};
	request->json =
	    json_loadb(payload, length, JSON_REJECT_DUPLICATES, &error);
	if (request->json == NULL ||
	    json_unpack_ex(request->json, &error, JSON_STRICT,
		"{s:s, s?s, s?o, s?s%, s?o}", "url", &request->url, "method",
		&request->method, "headers", &request->headers, "body",
		&request->body, &request->body_length, "timeout",
		&timeout) != 0) {
		(void)snprintf(
		    why, WHY_MAX, "the payload is no call: %s", error.text);
		wrong = why;
	} else
		wrong = members_check(request, timeout, why);
	if (memory_was_short)
		wrong = "no memory";
	if (wrong == NULL)
		return 0;
	if (wrong != why)
		(void)snprintf(why, WHY_MAX, "%s", wrong);
	request_free(request);
	return memory_was_short ? HWT_DURABLE_RETRY : HWT_DURABLE_FAIL;
}

void
request_free(struct request *request)
{
	json_decref(request->json);
	request->json = NULL;
}

/* What is sent. */

/* A header must not end within an id, and a point ends it where it is signed.
 */
static void
id_write(char *to, const char *id, size_t length)
{
	static const char digits[] = "0123456789ABCDEF";
	unsigned char byte;
	size_t i;

	for (i = 0; i < length; i++) {
		byte = (unsigned char)id[i];
		if (byte != '\0' && strchr(LETTERS DIGITS "_~-", byte)) {
			*to++ = (char)byte;
			continue;
		}
		*to++ = '%';
		*to++ = digits[byte >> 4];
		*to++ = digits[byte & 15];
	}
	*to = '\0';
}

void
sender_read(struct sender *sender, const struct hwt_durable_delivery *delivery)
{
	id_write(sender->id, delivery->id, delivery->id_length);
	sender->attempt = delivery->attempt;
	sender->generation = delivery->generation;
	sender->due_ms = delivery->due_unix_ns / HWT_MS(1);
	sender->fence = delivery->fence;
}

/* False: no memory. */
static bool __attribute__((format(printf, 2, 3)))
header_add(struct curl_slist **list, const char *format, ...)
{
	struct curl_slist *grown;
	va_list arguments;
	char *line;
	int length;

	va_start(arguments, format);
	length = vasprintf(&line, format, arguments);
	va_end(arguments);
	if (length < 0)
		return false;
	grown = curl_slist_append(*list, line);
	free(line);
	if (grown == NULL)
		return false;
	*list = grown;
	return true;
}

/* "Name:" alone would mean that there is no such header. */
static bool
header_add_text(struct curl_slist **list, const char *name, const char *text)
{
	if (text[strspn(text, " \t")] == '\0')
		return header_add(list, "%s;", name);
	return header_add(list, "%s: %s", name, text);
}

/* Those of the task. */
static bool
headers_add(struct curl_slist **list, const struct request *request,
    const char *body, bool is_other)
{
	bool has_type = false, has_agent = false, is_type, is_agent,
	     done = true;
	const char *name;
	json_t *value;

	json_object_foreach(request->headers, name, value)
	{
		is_type = strcasecmp(name, "content-type") == 0;
		is_agent = strcasecmp(name, "user-agent") == 0;
		has_type |= is_type;
		has_agent |= is_agent;
		if (!is_other || is_type || is_agent)
			done = done &&
			    header_add_text(
				list, name, json_string_value(value));
	}
	if (body != NULL && !has_type)
		done =
		    done && header_add(list, "Content-Type: application/json");
	if (!has_agent)
		done = done &&
		    header_add(list, "User-Agent: hwt-http/%s", hwt_version());
	return done;
}

/* "v1," and the HMAC of what is signed, in base64. */
static bool
sign(char signature[SIGNATURE_MAX], const void *key, size_t key_length,
    const char *text, size_t length)
{
	unsigned char digest[DIGEST_LENGTH];

	if (HMAC(EVP_sha256(), key, (int)key_length,
		(const unsigned char *)text, length, digest, NULL) == NULL)
		return false;
	(void)snprintf(signature, SIGNATURE_MAX, "v1,");
	(void)EVP_EncodeBlock((unsigned char *)signature + strlen(signature),
	    digest, sizeof(digest));
	return true;
}

/* One signature for each secret, with spaces between. */
static bool
signature_add(struct curl_slist **list, const struct sender *sender,
    const struct secrets *secrets, uint64_t unix_s, const char *body,
    size_t body_length)
{
	char all[SECRETS_MAX][SIGNATURE_MAX] = {0};
	char *text;
	size_t i, length;
	int head;
	bool done = true;

	if (secrets->count == 0)
		return true;
	head = asprintf(&text, "%s.%" PRIu64 ".%*s", sender->id, unix_s,
	    (int)body_length, "");
	if (head < 0)
		return false;
	length = (size_t)head;
	if (body_length > 0)
		memcpy(text + length - body_length, body, body_length);
	for (i = 0; i < secrets->count && done; i++)
		done = sign(all[i], secrets->secret[i].key,
		    secrets->secret[i].length, text, length);
	free(text);
	return done &&
	    header_add(list, "Webhook-Signature: %s%s%s%s%s%s%s", all[0],
		secrets->count > 1 ? " " : "", all[1],
		secrets->count > 2 ? " " : "", all[2],
		secrets->count > 3 ? " " : "", all[3]);
}

static bool
sender_add(
    struct curl_slist **list, const struct sender *sender, uint64_t unix_s)
{
	return header_add(list, "Webhook-Id: %s", sender->id) &&
	    header_add(list, "Webhook-Timestamp: %" PRIu64, unix_s) &&
	    header_add(list, "Hwt-Attempt: %" PRIu32, sender->attempt) &&
	    header_add(list, "Hwt-Generation: %" PRIu32, sender->generation) &&
	    header_add(list, "Hwt-Fence: %" PRIu64, sender->fence) &&
	    header_add(list, "Hwt-Due: %" PRIu64, sender->due_ms);
}

struct curl_slist *
headers_make(const struct request *request, const struct sender *sender,
    const struct secrets *secrets, uint64_t unix_s, const char *body,
    bool is_other)
{
	struct curl_slist *list = NULL;

	/* Nothing is asked for before the body is sent. */
	if (header_add(&list, "Expect:") &&
	    headers_add(&list, request, body, is_other) &&
	    (is_other ||
		(sender_add(&list, sender, unix_s) &&
		    signature_add(&list, sender, secrets, unix_s, body,
			body != NULL ? request->body_length : 0))))
		return list;
	curl_slist_free_all(list);
	return NULL;
}

/* Secrets. */

#define SECRET_BEGIN "whsec_" /* base64 follows */

static const char *
secret_add(struct secrets *secrets, char *line, size_t length)
{
	size_t begin = strlen(SECRET_BEGIN);

	if (length > 0 && line[length - 1] == '\n')
		length--;
	if (length >= begin && memcmp(line, SECRET_BEGIN, begin) == 0) {
		line += begin;
		length -= begin;
		if (!base64_decode(line, &length))
			return "what follows whsec_ is no base64";
	}
	if (length < SECRET_MIN)
		return "a secret has at least 16 bytes";
	if (length > sizeof(secrets->secret[0].key))
		return "a secret is too long";
	if (secrets->count == SECRETS_MAX)
		return "there are more than 4 secrets";
	memcpy(secrets->secret[secrets->count].key, line, length);
	secrets->secret[secrets->count++].length = length;
	return NULL;
}

const char *
secrets_read(struct secrets *secrets, const char *path)
{
	FILE *file = fopen(path, "re");
	const char *wrong = NULL;
	char *line = NULL;
	size_t size = 0;
	ssize_t length;

	if (file == NULL)
		return system_text(errno);
	while (wrong == NULL && (length = getline(&line, &size, file)) >= 0)
		wrong = secret_add(secrets, line, (size_t)length);
	if (wrong == NULL && ferror(file))
		wrong = system_text(errno);
	if (wrong == NULL && secrets->count == 0)
		wrong = "it is empty";
	free(line);
	(void)fclose(file);
	return wrong;
}
