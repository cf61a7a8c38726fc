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

/* Colours are attributes, which every viewer knows. Where a style sheet is read
 * as well, it changes them for a dark page, by class. */
#define PAPER "class=\"paper\" fill=\"#fff\""
#define DIM "class=\"dim\" fill=\"#5c6670\""
#define QUEUE "class=\"queue\" fill=\"#00856a\""
#define NOW "class=\"now\" fill=\"#f5b700\""
#define LINE "class=\"line\" fill=\"none\" stroke=\"#5c6670\""
#define SMALL "font-size=\"12\""
#define MID "text-anchor=\"middle\""
#define NUM "text-anchor=\"end\""

static const char *const level_paints[LEVELS] = {
    "class=\"l0\" fill=\"#08306b\"", "class=\"l1\" fill=\"#2171b5\"",
    "class=\"l2\" fill=\"#6baed6\"", "class=\"l3\" fill=\"#b5d2e8\"",
    ("class=\"l4\" fill=\"none\" stroke=\"#d5301a\""
     " stroke-width=\"1.5\"")};

static const char dark[] =
    "<style>\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  text { fill: #e8ebee; } .dim { fill: #a0a9b3; }\n"
    "  .paper { fill: #14181d; } .line { stroke: #a0a9b3; }\n"
    "  .l0 { fill: #d6eafc; } .l1 { fill: #6fb4ec; }\n"
    "  .l2 { fill: #2f78b7; } .l3 { fill: #1d4a75; }\n"
    "  .l4 { stroke: #ff7a5c; } .queue { fill: #3fd0a4; } }\n"
    "</style>\n";

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
		    "<path " NOW " d=\"M-7 -62L0 -76L7 -62z\"/>\n"
		    "<rect " NOW "\n  x=\"-4.5\" y=\"-%d\" width=\"9\""
		    " height=\"%d\" opacity=\".3\"/>\n",
		    RADIUS + BAR_MAX, BAR_MAX);
	for (n = 0; n < picture->heights[bucket]; n++) {
		unsigned top = 10 * (RADIUS + 1) + (n + 1) * unit;

		fprintf(file,
		    "<rect %s\n  x=\"-3.5\" y=\"-%u.%u\" width=\"7\""
		    " height=\"%u.%u\"/>\n",
		    level_paints[picture_level(picture, bucket, n)], top / 10,
		    top % 10, height / 10, height % 10);
	}
	if (bucket % 8 == 0)
		fprintf(file,
		    "<text " DIM " " SMALL " " MID "\n"
		    "  dy=\"4\" transform=\"translate(0 -88) "
		    "rotate(-%u)\">%u</text>\n",
		    angle / 1000, bucket);
	fputs("</g>\n", file);
}

static void
draw_ring(FILE *file, const struct picture *picture)
{
	unsigned height = picture->height_max, bucket;
	unsigned unit = height < 12 ? 120 : 10 * BAR_MAX / (height + 1);

	fputs("<g transform=\"translate(275 270)\">\n"
	      "<circle " LINE " r=\"100\"/>\n",
	    file);
	for (bucket = 0; bucket < BUCKETS; bucket++)
		draw_bar(file, picture, bucket, unit);
	fprintf(file,
	    "<text " MID " font-size=\"22\" y=\"-2\">tick %" PRIu64 "</text>\n"
	    "<text " MID " y=\"18\">bucket %" PRIu64 "</text>\n"
	    "<text " DIM " " SMALL " " MID "\n  y=\"36\">%d buckets</text>\n"
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
	    "<text " DIM " " SMALL "\n  x=\"570\" y=\"68\">scheduled since the"
	    " last tick</text>\n",
	    picture->queued);
	for (n = 0; n < picture->queued; n++)
		fprintf(file,
		    "<rect " QUEUE "\n  x=\"%u\" y=\"%u\" width=\"%u\""
		    " height=\"%u\"/>\n",
		    570 + n % row * pitch, 80 + n / row * pitch, pitch * 3 / 4,
		    pitch * 3 / 4);
	fputs("<path " LINE "\n  d=\"M560 86C520 86 490 96 462 120\"/>\n"
	      "<path " DIM " d=\"M456 125l11 -3l-6 -7z\"/>\n"
	      "<text " DIM " " SMALL " " NUM "\n  x=\"550\" y=\"76\">"
	      "hwt_advance</text>\n",
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
		    "<rect %s\n  x=\"570\" y=\"%u\" width=\"14\""
		    " height=\"10\"/>\n"
		    "<text x=\"594\" y=\"%u\">%s</text>\n"
		    "<text " NUM " x=\"800\" y=\"%u\">%u</text>\n",
		    level_paints[level], y - 9, y, level_names[level], y, sum);
	}
	fprintf(file,
	    "<rect " NOW "\n  x=\"570\" y=\"%u\" width=\"14\""
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

	fputs("<text " DIM " " SMALL " " NUM "\n  x=\"720\" y=\"380\">"
	      "this program</text>\n"
	      "<text " DIM " " SMALL " " NUM "\n  x=\"800\" y=\"380\">"
	      "the library</text>\n",
	    file);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++, y += 22)
		fprintf(file,
		    "<text x=\"570\" y=\"%u\">%s</text>\n"
		    "<text " NUM " x=\"720\" y=\"%u\">%" PRIu64 "</text>\n"
		    "<text " NUM " x=\"800\" y=\"%u\">%" PRIu64 "</text>\n",
		    y, rows[i].name, y, rows[i].own, y, rows[i].library);
}

/* The title comes first: that is where a viewer looks for it. */
static void
draw_head(FILE *file, const struct picture *picture)
{
	fprintf(file,
	    "<svg xmlns=\"http://www.w3.org/2000/svg\""
	    " viewBox=\"0 -50 860 590\"\n"
	    "  role=\"img\" font-family=\"system-ui, sans-serif\" "
	    "font-size=\"14\"\n"
	    "  fill=\"#1c2127\">\n"
	    "<title>A hashed wheel timer under the load"
	    " \"%s\"</title>\n"
	    "<desc>%" PRIu64 " pending timeouts in %d buckets, each a square,\n"
	    "shaded by round; %u of them wait in the queue; %u were\n"
	    "cancelled since the last tick.</desc>\n",
	    picture->load, picture->own.pending, BUCKETS, picture->queued,
	    picture->cancelled);
	fputs(dark, file);
	fprintf(file,
	    "<rect " PAPER " y=\"-50\" width=\"860\" height=\"590\"/>\n"
	    "<text x=\"24\" y=\"-14\" font-size=\"20\">"
	    "A hashed wheel timer</text>\n"
	    "<text " DIM " x=\"24\"\n  y=\"8\">"
	    "each square a timeout, under the load \"%s\"</text>\n",
	    picture->load);
}

void
draw_svg(FILE *file, const struct picture *picture)
{
	draw_head(file, picture);
	draw_ring(file, picture);
	draw_queue(file, picture);
	draw_legend(file, picture);
	draw_counts(file, picture);
	fputs("</svg>\n", file);
}
