/* SPDX-License-Identifier: Apache-2.0 */
/* What memcheck is there for. Called with "leak", loses a block; with "bits",
 * decides by memory that nobody wrote; with "child", does so in a child. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept;

static int
decide_by_nothing(void)
{
	char *memory = malloc(1);

	kept = memory;
	if (memory && *(char *)kept == 42)
		(void)!write(1, "?", 1);
	free(memory);
	return 0;
}

int
main(int argc, char **argv)
{
	if (argc < 2)
		return 1;
	if (!strcmp(argv[1], "leak")) {
		kept = malloc(1);
		kept = NULL;
		return 0;
	}
	if (!strcmp(argv[1], "child") && fork() > 0) {
		wait(NULL);
		return 0;
	}
	return decide_by_nothing();
}
