/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The still picture: the wheel as a ring, whose bars grow outward. Whole
 * numbers alone, so that the same picture is the same file everywhere.
 */
#include "wheel.h"

#include <inttypes.h>

#define RADIUS 100
#define BAR_MAX 150
/* With more in the queue, its squares become small. */
#define QUEUE_LARGE 64
#define QUEUE_WIDTH 230

static const char head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 860 540\""
    "\n  role=\"img\">\n"
    "<style>\n"
    "svg { --paper: #fff; --ink: #1c2127; --dim: #5c6670; --l0: #08306b;\n"
    "  --l1: #2171b5; --l2: #6baed6; --l3: #bcd7ea; --l4: #d5301a;\n"
    "  --new: #00856a; --now: #f5b700; }\n"
    "@media (prefers-color-scheme: dark) { svg { --paper: #14181d;\n"
    "  --ink: #e8ebee; --dim: #a0a9b3; --l0: #d6eafc; --l1: #6fb4ec;\n"
    "  --l2: #2f78b7; --l3: #1d4a75; --l4: #ff7a5c; --new: #3fd0a4; } }\n"
    "text { font: 14px system-ui, sans-serif; fill: var(--ink); }\n"
    "text.dim { fill: var(--dim); font-size: 12px; }\n"
    ".mid { text-anchor: middle; } .num { text-anchor: end; }\n"
    "text.big { font-size: 22px; }\n"
    ".l0 { fill: var(--l0); } .l1 { fill: var(--l1); }\n"
    ".l2 { fill: var(--l2); } .l3 { fill: var(--l3); }\n"
    ".l4 { fill: none; stroke: var(--l4); stroke-width: 1.5; }\n"
    ".queue { fill: var(--new); } .now { fill: var(--now); }\n"
    ".arrow { fill: var(--dim); }\n"
    ".line { fill: none; stroke: var(--dim); }\n"
    "</style>\n"
    "<rect width=\"860\" height=\"540\" style=\"fill: var(--paper)\"/>\n";

/* A turn of the ring is 64 times 5.625 degrees. unit: tenths of what the view
 * box counts in, for each timeout. */
static void
draw_bar(
    FILE *file, const struct picture *picture, unsigned bucket, unsigned unit)
{
	unsigned angle = bucket * 5625, height = unit - unit / 6, n;

	fprintf(file, "<g transform=\"rotate(%u.%03u)\">\n", angle / 1000,
	    angle % 1000);
	if (bucket == picture->tick % BUCKETS)
		fprintf(file,
		    "<path class=\"now\" d=\"M-7 -62L0 -76L7 -62z\"/>\n"
		    "<rect class=\"now\" x=\"-4.5\" y=\"-%d\" width=\"9\""
		    " height=\"%d\" opacity=\".3\"/>\n",
		    RADIUS + BAR_MAX, BAR_MAX);
	for (n = 0; n < picture->heights[bucket]; n++) {
		unsigned top = 10 * (RADIUS + 1) + (n + 1) * unit;

		fprintf(file,
		    "<rect class=\"l%u\" x=\"-3.5\" y=\"-%u.%u\" width=\"7\""
		    " height=\"%u.%u\"/>\n",
		    picture_level(picture, bucket, n), top / 10, top % 10,
		    height / 10, height % 10);
	}
	if (bucket % 8 == 0)
		fprintf(file,
		    "<text class=\"dim mid\" dy=\"4\"\n"
		    "  transform=\"translate(0 -88) rotate(-%u)\">%u</text>\n",
		    angle / 1000, bucket);
	fputs("</g>\n", file);
}

static void
draw_ring(FILE *file, const struct picture *picture)
{
	unsigned height = picture->height_max, bucket;
	unsigned unit = height < 12 ? 120 : 10 * BAR_MAX / (height + 1);

	fputs("<g transform=\"translate(275 270)\">\n"
	      "<circle class=\"line\" r=\"100\"/>\n",
	    file);
	for (bucket = 0; bucket < BUCKETS; bucket++)
		draw_bar(file, picture, bucket, unit);
	fprintf(file,
	    "<text class=\"mid big\" y=\"-2\">tick %" PRIu64 "</text>\n"
	    "<text class=\"mid\" y=\"18\">bucket %" PRIu64 "</text>\n"
	    "<text class=\"dim mid\" y=\"36\">%d buckets</text>\n"
	    "</g>\n",
	    picture->tick, picture->tick % BUCKETS, BUCKETS);
}

static void
draw_queue(FILE *file, const struct picture *picture)
{
	unsigned pitch = picture->queued <= QUEUE_LARGE ? 14 : 5;
	unsigned row = QUEUE_WIDTH / pitch, n;

	fprintf(file,
	    "<text x=\"570\" y=\"50\">in the queue: %u</text>\n"
	    "<text class=\"dim\" x=\"570\" y=\"68\">scheduled since the"
	    " last tick</text>\n",
	    picture->queued);
	for (n = 0; n < picture->queued; n++)
		fprintf(file,
		    "<rect class=\"queue\" x=\"%u\" y=\"%u\" width=\"%u\""
		    " height=\"%u\"/>\n",
		    570 + n % row * pitch, 80 + n / row * pitch, pitch * 3 / 4,
		    pitch * 3 / 4);
	fputs("<path class=\"line\" d=\"M560 86C520 86 490 96 462 120\"/>\n"
	      "<path class=\"arrow\" d=\"M456 125l11 -3l-6 -7z\"/>\n"
	      "<text class=\"dim num\" x=\"550\" y=\"76\">hwt_advance</text>\n",
	    file);
}

static void
draw_legend(FILE *file, const struct picture *picture)
{
	unsigned level, bucket, y = 192;

	fputs("<text x=\"570\" y=\"170\">in the wheel, due in</text>\n", file);
	for (level = 0; level < LEVELS; level++, y += 22) {
		unsigned sum = 0;

		for (bucket = 0; bucket < BUCKETS; bucket++)
			sum += picture->bars[bucket][level];
		fprintf(file,
		    "<rect class=\"l%u\" x=\"570\" y=\"%u\" width=\"14\""
		    " height=\"10\"/>\n"
		    "<text x=\"594\" y=\"%u\">%s</text>\n"
		    "<text class=\"num\" x=\"800\" y=\"%u\">%u</text>\n",
		    level, y - 9, y, level_names[level], y, sum);
	}
	fprintf(file,
	    "<rect class=\"now\" x=\"570\" y=\"%u\" width=\"14\""
	    " height=\"10\"/>\n"
	    "<text x=\"594\" y=\"%u\">the bucket of the next tick</text>\n",
	    y - 9, y);
}

static void
draw_counts(FILE *file, const struct picture *picture)
{
	const struct hwt_stats *own = &picture->own;
	const struct hwt_stats *library = &picture->library;
	const struct {
		const char *name;
		uint64_t own, library;
	} rows[] = {
	    {"pending", own->pending, library->pending},
	    {"scheduled", own->scheduled, library->scheduled},
	    {"rescheduled", own->rescheduled, library->rescheduled},
	    {"cancelled", own->cancelled, library->cancelled},
	    {"started", own->started, library->started},
	};
	unsigned i, y = 405;

	fputs(
	    "<text class=\"dim num\" x=\"720\" y=\"380\">this program</text>\n"
	    "<text class=\"dim num\" x=\"800\" y=\"380\">the library</text>\n",
	    file);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++, y += 22)
		fprintf(file,
		    "<text x=\"570\" y=\"%u\">%s</text>\n"
		    "<text class=\"num\" x=\"720\" y=\"%u\">%" PRIu64
		    "</text>\n"
		    "<text class=\"num\" x=\"800\" y=\"%u\">%" PRIu64
		    "</text>\n",
		    y, rows[i].name, y, rows[i].own, y, rows[i].library);
}

void
draw_svg(FILE *file, const struct picture *picture)
{
	fputs(head, file);
	fprintf(file,
	    "<title>A hashed wheel timer under the load \"%s\"</title>\n"
	    "<desc>%" PRIu64 " pending timeouts in %d buckets, each a square,"
	    "\nshaded by round; %u of them wait in the queue; %u were\n"
	    "cancelled since the last tick.</desc>\n",
	    picture->load, picture->own.pending, BUCKETS, picture->queued,
	    picture->cancelled);
	draw_ring(file, picture);
	draw_queue(file, picture);
	draw_legend(file, picture);
	draw_counts(file, picture);
	fputs("</svg>\n", file);
}
