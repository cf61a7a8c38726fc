/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters as text for monitoring, of the library and of its modules.
 *
 * One table has the names of both formats, Prometheus's and JSON. The table's
 * owner may print more between and after its figures.
 *
 * Times are whole nanoseconds, and seconds are printed from them digit by
 * digit: no number is rounded.
 *
 * A histogram's element k counts times of [2^k, 2^(k+1)) ns. For Prometheus it
 * has fewer buckets, each of them whole: cumulative counts stay exact when
 * buckets between are left out. A bucket's bound is inclusive, and so one
 * nanosecond less.
 */
#ifndef HWT_FIGURES_H
#define HWT_FIGURES_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "observe/page.h"
#include "observe/utf8.h"

/* Of a quoted name of 16 bytes, each of which may become three. */
#define LABEL_BYTES 72
#define REPLACEMENT "\xef\xbf\xbd"

/* Elements of a histogram whose upper bounds are buckets: from 1 us to more
 * than a minute. */
#define BUCKET_FIRST 9
#define BUCKET_LAST 35
#define ELEMENTS 64
#define NS_PER_SECOND UINT64_C(1000000000)

struct figure {
	const char *key; /* in JSON */
	const char *metric;
	const char *type;
	const char *help;
	size_t offset; /* of a uint64_t, in the counters */
};

#define FIGURE(counters, key, metric, type, help)                        \
	{                                                                \
#key, metric, type, help, offsetof(struct counters, key) \
	}

/* What is written about one object. */
struct report {
	struct page page;
	const struct figure *figure;
	size_t figures;
	const void *stats; /* the counters */
	const char *kind; /* of object */
	const char *name; /* fit for a quoted string: see quote_name */
	uint64_t serial; /* no other object of the kind has it */
	char more[64]; /* further labels, each after a comma */
	bool heads; /* with # HELP and # TYPE */
};

/* A name as both formats want it between quotes: valid UTF-8, with the quote,
 * the backslash and the newline escaped. JSON has no other control characters
 * in strings, and Prometheus no way to escape them: they are replaced. */
static inline void
quote_name(char *quoted, const char *name)
{
	size_t length;

	for (; *name != '\0'; name += length > 0 ? length : 1) {
		length = utf8_length(name, 4);
		if (*name == '"' || *name == '\\' || *name == '\n') {
			*quoted++ = '\\';
			*quoted++ = (char)(*name == '\n' ? 'n' : *name);
		} else if (length == 0 || (unsigned char)*name < 0x20) {
			memcpy(quoted, REPLACEMENT, 3);
			quoted += 3;
		} else {
			memcpy(quoted, name, length);
			quoted += length;
		}
	}
	*quoted = '\0';
}

static inline uint64_t
figure_value(const struct report *report, const struct figure *figure)
{
	const char *at = (const char *)report->stats + figure->offset;

	return *(const uint64_t *)(const void *)at;
}

static inline void
print_head(struct report *report, const char *metric, const char *type,
    const char *help)
{
	if (report->heads)
		page_print(&report->page, "# HELP %s %s\n# TYPE %s %s\n",
		    metric, help, metric, type);
}

/* The beginning of a line; extra: more labels. */
static inline void
print_labels(struct report *report, const char *metric, const char *suffix,
    const char *extra)
{
	page_print(&report->page, "%s%s{%s=\"%s\",serial=\"%" PRIu64 "\"%s%s} ",
	    metric, suffix, report->kind, report->name, report->serial,
	    report->more, extra);
}

static inline void
print_sample(struct report *report, const char *metric, const char *suffix,
    const char *extra, uint64_t value)
{
	print_labels(report, metric, suffix, extra);
	page_print(&report->page, "%" PRIu64 "\n", value);
}

static inline void
print_figures(struct report *report)
{
	const struct figure *figure = report->figure;
	const struct figure *end = figure + report->figures;

	for (; figure < end; figure++) {
		print_head(report, figure->metric, figure->type, figure->help);
		print_sample(report, figure->metric, "", "",
		    figure_value(report, figure));
	}
}

/* An object of JSON, without its end. */
static inline void
print_figures_json(struct report *report)
{
	const struct figure *figure = report->figure;
	const struct figure *end = figure + report->figures;

	page_print(&report->page, "{\"%s\":\"%s\",\"serial\":%" PRIu64,
	    report->kind, report->name, report->serial);
	for (; figure < end; figure++)
		page_print(&report->page, ",\"%s\":%" PRIu64, figure->key,
		    figure_value(report, figure));
}

static inline void
print_seconds(
    struct report *report, const char *metric, const char *suffix, uint64_t ns)
{
	print_labels(report, metric, suffix, "");
	page_print(&report->page, "%" PRIu64 ".%09" PRIu64 "\n",
	    ns / NS_PER_SECOND, ns % NS_PER_SECOND);
}

/* The elements from first to last are buckets. The count is that of the last
 * one, since both are added up from the same readings. */
static inline void
print_buckets(struct report *report, const char *metric, const char *help,
    const uint64_t histogram[ELEMENTS], uint64_t sum_ns, int first, int last)
{
	uint64_t count = 0;
	uint64_t bound;
	char extra[48];
	int k;

	print_head(report, metric, "histogram", help);
	for (k = 0; k < ELEMENTS; k++) {
		count += histogram[k];
		if (k < first || k > last)
			continue;
		bound = (UINT64_C(2) << k) - 1;
		(void)snprintf(extra, sizeof(extra),
		    ",le=\"%" PRIu64 ".%09" PRIu64 "\"", bound / NS_PER_SECOND,
		    bound % NS_PER_SECOND);
		print_sample(report, metric, "_bucket", extra, count);
	}
	print_sample(report, metric, "_bucket", ",le=\"+Inf\"", count);
	print_seconds(report, metric, "_sum", sum_ns);
	print_sample(report, metric, "_count", "", count);
}

static inline void
print_histogram(struct report *report, const char *metric, const char *help,
    const uint64_t histogram[ELEMENTS], uint64_t sum_ns)
{
	print_buckets(
	    report, metric, help, histogram, sum_ns, BUCKET_FIRST, BUCKET_LAST);
}

static inline void
print_histogram_json(struct report *report, const uint64_t histogram[ELEMENTS])
{
	int k;

	for (k = 0; k < ELEMENTS; k++)
		page_print(&report->page, "%c%" PRIu64, k == 0 ? '[' : ',',
		    histogram[k]);
	page_print(&report->page, "]");
}

#endif
