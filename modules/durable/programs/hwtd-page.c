/* SPDX-License-Identifier: Apache-2.0 */
/* The page at /, whose files are those of page/ as they are. */
#include <string.h>

#include "hwtd-page.h"

#define FOLDER "modules/durable/programs/page/"
#define INCLUDE(name, file)                                    \
	__asm__(".pushsection .rodata\n"                       \
		".globl page_" name ", page_" name "_end\n"    \
		".hidden page_" name ", page_" name "_end\n"   \
		"page_" name ": .incbin \"" FOLDER file "\"\n" \
		"page_" name "_end: .popsection")

INCLUDE("html", "index.html");
INCLUDE("css", "page.css");
INCLUDE("js", "page.js");
extern const char page_html[], page_html_end[], page_css[], page_css_end[],
    page_js[], page_js_end[];

static const struct {
	const char *path, *type, *text, *end;
} files[] = {
    {"/", "text/html; charset=utf-8", page_html, page_html_end},
    {"/page.css", "text/css; charset=utf-8", page_css, page_css_end},
    {"/page.js", "text/javascript; charset=utf-8", page_js, page_js_end},
};

#define FILES (sizeof(files) / sizeof(files[0]))

bool
page_has(const char *path)
{
	size_t i;

	for (i = 0; i < FILES; i++) {
		if (strcmp(path, files[i].path) == 0)
			return true;
	}
	return false;
}

/* Nothing of another host, nothing inline, in no frame. */
void
page_answer(struct api *api)
{
	struct http_answer *answer = api->answer;
	size_t i = 0;

	while (strcmp(api->request->path, files[i].path) != 0)
		i++;
	answer->type = files[i].type;
	(void)fwrite(files[i].text, 1, (size_t)(files[i].end - files[i].text),
	    answer->body);
	http_answer_header(answer, "Content-Security-Policy",
	    "default-src 'none'; script-src 'self'; style-src 'self'; "
	    "connect-src 'self'; img-src data:; base-uri 'none'; "
	    "form-action 'none'; frame-ancestors 'none'");
	http_answer_header(answer, "Referrer-Policy", "no-referrer");
}
