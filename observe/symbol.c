/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of addresses. What is not named, addr2line -f -e FILE 0x11c9 names.
 *
 * The dynamic linker holds its lock while it runs the constructors and
 * destructors of a library, and these may call hwt_stop. So whatever hwt_stop
 * waits for, and whoever holds a lock of this library, must not ask it. The
 * kernel's table of mappings needs no lock of this process; dl_iterate_phdr
 * does, and a fork leaves that lock as it is.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/symbol.h"

#define MAPS_LINE_BYTES 512

/* A line is "begin-end rwxp offset device inode path". The begin of the file's
 * first mapping, from which it is mapped in one piece, is in *base. The path if
 * the line's mapping has the address and is a file's; otherwise NULL. */
static char *
path_of(char *line, uintptr_t address, uintptr_t *base)
{
	char *at;
	uintptr_t begin = strtoul(line, &at, 16);
	uintptr_t end = strtoul(at + (*at == '-'), &at, 16);

	if (strlen(at) < sizeof(" rwxp "))
		return NULL;
	if (strtoul(at + sizeof(" rwxp ") - 1, NULL, 16) == 0)
		*base = begin;
	return begin <= address && address < end ? strchr(at, '/') : NULL;
}

const char *
symbol_place(const void *address, char *text, size_t size)
{
	uintptr_t at = (uintptr_t)address;
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[MAPS_LINE_BYTES];
	uintptr_t base = 0;
	char *path;

	(void)snprintf(text, size, "%p", address);
	if (maps == NULL)
		return text;
	while (fgets(line, sizeof(line), maps) != NULL) {
		path = path_of(line, at, &base);
		if (path == NULL)
			continue;
		path[strcspn(path, "\n")] = '\0';
		(void)snprintf(
		    text, size, "%s+%#zx", path, (size_t)(at - base));
		break;
	}
	(void)fclose(maps);
	return text;
}
