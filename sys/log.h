/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on stderr. See log.c. */
#ifndef HWT_LOG_H
#define HWT_LOG_H

/* Writes "hwt: ", the message and a newline to stderr, or drops the message if
 * that would wait. Any thread. */
void log_stderr(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
