/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP API does, by path: see hwtd-serve.c for the table. */
#ifndef HWT_DURABLE_HWTD_API_H
#define HWT_DURABLE_HWTD_API_H

#include "http.h"
#include "modules/durable/hwt_durable.h"
#include "queues.h"

/* A request and its answer. */
struct api {
	struct hwt_durable *durable;
	const struct http_request *request;
	struct http_answer *answer;
	const char *escaped; /* the id in the path, as it was sent */
	size_t escaped_length;
};

typedef void api_function(struct api *api);

/* Says why a request has the status of the answer, which is none of the
 * library's errors. */
void api_refuse(struct api *api);

/* Below /v1/tasks. */
void api_add(struct api *api); /* one, or an array */
void api_tasks(struct api *api);
void api_put(struct api *api);
void api_show(struct api *api);
void api_cancel(struct api *api);
void api_reschedule(struct api *api);

/* Below /v1/dead. */
void api_dead(struct api *api);
void api_replay(struct api *api);
void api_drop(struct api *api);

/* Below /v1/queues. */
void api_queues(struct api *api, const struct queues *queues);
void api_queue(struct api *api);
void api_pause(struct api *api);
void api_resume(struct api *api);
void api_limit(struct api *api);

/* Below /v1/schedules. */
void api_schedules(struct api *api);
void api_schedule_show(struct api *api);
void api_schedule_put(struct api *api);
void api_schedule_drop(struct api *api);

/* What the body is as JSON, which the caller frees with json_decref. NULL: it
 * is none, and that is answered. */
struct json_t *api_body(struct api *api);

/* The name of a queue or schedule in the path; "" if what is there is too long
 * for one. */
void api_name(const struct api *api, char name[HWT_DURABLE_QUEUE_MAX + 1]);

/* The id in the path, which may have any bytes. False: it is none, and that is
 * answered. */
bool api_id(struct api *api, char id[HWT_DURABLE_ID_MAX], size_t *id_length);

/* The answer has this status, and what is written there: JSON. */
FILE *api_json(struct api *api, unsigned status);

/* Answers that the request makes no sense. */
void api_invalid(struct api *api, const char *message);

/* Answers an error of the library. */
void api_fail(struct api *api, int error);

/* Answers an error, or the state that a task has now. */
void api_done(struct api *api, int error, const char *id, size_t id_length,
    const char *state);

#endif
