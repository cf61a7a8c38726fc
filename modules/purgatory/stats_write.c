/* SPDX-License-Identifier: Apache-2.0 */
/* hwt_purgatory_stats_write: the counters as text for monitoring, with the
 * library's writer. The explorer does not have it. */
#include <errno.h>

#include "operation.h"
#include "observe/figures.h"

#define OPERATION_FIGURE(key, metric, type, help) \
	FIGURE(hwt_purgatory_stats, key, "hwt_purgatory_" metric, type, help)

static const struct figure figures[] = {
    OPERATION_FIGURE(pending, "operations_pending", "gauge",
	"Operations that were accepted and have not ended."),
    OPERATION_FIGURE(
	links, "links", "gauge", "Links of pending operations under keys."),
    OPERATION_FIGURE(keys, "keys", "gauge", "Keys with a link."),
    OPERATION_FIGURE(completed, "operations_completed_total", "counter",
	"Operations that have ended as completed."),
    OPERATION_FIGURE(expired, "operations_expired_total", "counter",
	"Operations that have ended at their deadline."),
    OPERATION_FIGURE(cancelled, "operations_cancelled_total", "counter",
	"Operations that have ended as cancelled."),
    OPERATION_FIGURE(shut_down, "operations_shut_down_total", "counter",
	"Operations that have ended by a shutdown."),
    OPERATION_FIGURE(
	tried, "predicates_called_total", "counter", "Calls of predicates."),
    OPERATION_FIGURE(memory_bytes, "memory_bytes", "gauge",
	"Memory that the purgatory holds."),
};

int
hwt_purgatory_stats_write(
    const struct hwt_purgatory *purgatory, FILE *file, enum hwt_format format)
{
	struct hwt_purgatory_stats stats;
	struct report report = {
	    .page = {.file = file},
	    .figure = figures,
	    .figures = sizeof(figures) / sizeof(figures[0]),
	    .stats = &stats,
	    .kind = "purgatory",
	    .heads = format == HWT_PROMETHEUS,
	};
	char name[LABEL_BYTES];
	int error = hwt_purgatory_read_stats(purgatory, &stats);

	if (error != 0)
		return error;
	if (file == NULL || format < HWT_PROMETHEUS ||
	    format > HWT_PROMETHEUS_SAMPLES)
		return -EINVAL;
	quote_name(name, purgatory->name);
	report.name = name;
	report.serial = purgatory->serial;
	if (format == HWT_JSON) {
		print_figures_json(&report);
		page_print(&report.page, "}\n");
	} else {
		print_figures(&report);
	}
	return page_end(&report.page);
}
