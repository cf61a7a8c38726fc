/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics: HWT.STAT of each queue in the text format of Prometheus. */
#include <microhttpd.h>

#include "modules/durable/server/http.h"

static const struct family {
	const char *name, *type, *help;
	double scale; /* of the stat: times are in ms there, in s here */
	const char *stats[7];
	const char *labels[6]; /* NULL: the family has but one stat */
} families[] = {
    {"hwt_durable_tasks", "gauge", "Tasks by state.", 1,
	{"waiting", "due", "running", "done", "dead", "cancelled"},
	{"waiting", "due", "running", "done", "dead", "cancelled"}},
    {"hwt_durable_added_total", "counter", "Tasks that were added.", 1,
	{"added-total"}, {NULL}},
    {"hwt_durable_attempts_total", "counter", "Attempts that have begun.", 1,
	{"begun-total"}, {NULL}},
    {"hwt_durable_retried_total", "counter",
	"Attempts that ended and were not the last of their task.", 1,
	{"retried-total"}, {NULL}},
    {"hwt_durable_ended_total", "counter", "Tasks that have ended.", 1,
	{"done-total", "dead-total", "cancelled-total"},
	{"done", "dead", "cancelled"}},
    {"hwt_durable_leases_ended_total", "counter",
	"Attempts that ended because their lease ran out.", 1,
	{"leases-ended-total"}, {NULL}},
    {"hwt_durable_expired_total", "counter",
	"Tasks that were not begun in time, and became dead letters.", 1,
	{"expired-total"}, {NULL}},
    {"hwt_durable_late_seconds", "gauge",
	"For how long the first of the due tasks has been due.", 1e-3, {"late"},
	{NULL}},
    {"hwt_durable_ahead_seconds", "gauge",
	"How far the time of the queue is ahead of the server's clock.", 1e-3,
	{"ahead"}, {NULL}},
    {"hwt_durable_paused", "gauge", "1 while the queue is paused.", 1,
	{"paused"}, {NULL}},
    {"hwt_durable_memory_bytes", "gauge", "Memory that the queue takes.", 1,
	{"memory-bytes"}, {NULL}},
};

static void
write_family(
    FILE *out, const struct family *family, const struct queue_list *list)
{
	size_t j;
	int i;

	(void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family->name,
	    family->help, family->name, family->type);
	for (i = 0; i < list->count; i++) {
		for (j = 0; family->stats[j] != NULL; j++) {
			if (reply_find(list->row[i].stat, family->stats[j]) ==
			    NULL)
				continue;
			(void)fprintf(out, "%s{queue=\"%s\"", family->name,
			    list->row[i].name);
			if (family->labels[j] != NULL)
				(void)fprintf(out, ",%s=\"%s\"",
				    family->type[0] == 'g' ? "state" : "end",
				    family->labels[j]);
			(void)fprintf(out, "} %.15g\n",
			    (double)reply_number(
				list->row[i].stat, family->stats[j]) *
				family->scale);
		}
	}
}

void
metrics_answer(struct request *request, redisContext *context)
{
	struct queue_list list;
	char why[ENGINE_WHY];
	size_t i;

	if (!engine_read_queues(
		request->engine, context, "", ENGINE_QUEUES_MAX, &list, why)) {
		request_fail(request, MHD_HTTP_SERVICE_UNAVAILABLE, why);
		return;
	}
	request->type = "text/plain; version=0.0.4; charset=utf-8";
	for (i = 0; i < sizeof(families) / sizeof(*families); i++)
		write_family(request->out, &families[i], &list);
	engine_free_queues(&list);
}
