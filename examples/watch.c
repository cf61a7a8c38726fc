/* SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file examples/timer.html as it is. */
__asm__(".pushsection .rodata\n"
	".globl page, page_length\n"
	".hidden page, page_length\n"
	".balign 8\n"
	"page_length: .8byte page_end - page\n"
	"page: .incbin \"examples/timer.html\"\n"
	"page_end: .popsection");
extern const char page[];
extern const uint64_t page_length;

static int
write_page(const struct hwt *timer, FILE *file)
{
	(void)timer;
	fwrite(page, 1, page_length, file);
	return 0;
}

static int
write_json(const struct hwt *timer, FILE *file)
{
	return hwt_stats_write(timer, file, HWT_JSON);
}

static int
write_metrics(const struct hwt *timer, FILE *file)
{
	return hwt_stats_write(timer, file, HWT_PROMETHEUS);
}

static const struct {
	const char *path, *type;
	int (*write)(const struct hwt *timer, FILE *file);
} texts[] = {
    {"/_timer", "text/html", write_page},
    {"/_timer.json", "application/json", write_json},
    {"/metrics", "text/plain; version=0.0.4", write_metrics},
};

bool
watch_answer(struct http_answer *answer, struct http_request *request,
    const struct hwt *timer)
{
	char *text = NULL;
	size_t length = 0, i = 0;
	FILE *file;
	int error;

	while (!http_path_is(request->path, texts[i].path))
		if (++i == sizeof(texts) / sizeof(texts[0]))
			return false;
	request->keep_alive = false;
	file = open_memstream(&text, &length);
	error = file == NULL || texts[i].write(timer, file) != 0;
	if (file != NULL && fclose(file) != 0)
		error = 1;
	if (error == 0) {
		http_answer_text(answer, request, texts[i].type, text, length);
		return true;
	}
	free(text);
	http_answer_error(answer, 503);
	return true;
}
