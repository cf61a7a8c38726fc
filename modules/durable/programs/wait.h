/* SPDX-License-Identifier: Apache-2.0 */
/* Waits with a deadline. */
#ifndef HWT_DURABLE_WAIT_H
#define HWT_DURABLE_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/* CLOCK_MONOTONIC, in ms. */
int64_t wait_now_ms(void);

/* Whether one of the events of poll came to the descriptor by that time. */
bool wait_for(int fd, short events, int64_t until_ms);

#endif
