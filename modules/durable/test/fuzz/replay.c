/* SPDX-License-Identifier: Apache-2.0 */
/* replay FILE...: gives each file to the fuzzing target, without libFuzzer. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define INPUT_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
replay(const char *name)
{
	static uint8_t data[INPUT_MAX];
	FILE *file = fopen(name, "rb");
	size_t size;

	if (file == NULL) {
		perror(name);
		exit(2);
	}
	size = fread(data, 1, sizeof(data), file);
	(void)fclose(file);
	(void)LLVMFuzzerTestOneInput(data, size);
}

int
main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		replay(argv[i]);
	printf("replay: %d inputs\n", argc - 1);
	return argc > 1 ? 0 : 2;
}
