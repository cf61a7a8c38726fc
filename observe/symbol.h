/* SPDX-License-Identifier: Apache-2.0 */
/* Names of addresses in code. A name like FILE+0x11c9 is for
 * addr2line -f -e FILE 0x11c9. Who includes this defines _GNU_SOURCE. */
#ifndef HWT_SYMBOL_H
#define HWT_SYMBOL_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SYMBOL_BYTES 192

/* The name of what is at that address, in that memory: FUNCTION+0x1c (FILE),
 * FILE+0x11c9 if the dynamic linker knows no function there (a static function,
 * or one of a program that was not linked with -rdynamic), or the address. */
static inline const char *
symbol_name(const void *address, char *text, size_t size)
{
	uintptr_t at = (uintptr_t)address;
	Dl_info info;

	if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
		(void)snprintf(text, size, "%p", address);
	else if (info.dli_sname == NULL)
		(void)snprintf(text, size, "%s+%#zx", info.dli_fname,
		    (size_t)(at - (uintptr_t)info.dli_fbase));
	else if (address == info.dli_saddr)
		(void)snprintf(
		    text, size, "%s (%s)", info.dli_sname, info.dli_fname);
	else
		(void)snprintf(text, size, "%s+%#zx (%s)", info.dli_sname,
		    (size_t)(at - (uintptr_t)info.dli_saddr), info.dli_fname);
	return text;
}

#endif
