/* SPDX-License-Identifier: Apache-2.0 */
/* Names of addresses in code. See symbol.c. */
#ifndef HWT_SYMBOL_H
#define HWT_SYMBOL_H

#include <stddef.h>

#define SYMBOL_BYTES 192

/* The name of what is at that address, in that memory: FUNCTION+0x1c (FILE),
 * FILE+0x11c9 if the dynamic linker knows no function there (a static function,
 * or one of a program that was not linked with -rdynamic), or the address. */
const char *symbol_name(const void *address, char *text, size_t size);

/* The same without names of functions, and without the dynamic linker's lock,
 * which symbol_name takes: for threads that hwt_stop waits for. */
const char *symbol_place(const void *address, char *text, size_t size);

#endif
