/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a subject has that is written in another language: functions that it
 * exports to C. Of these alone a call stays a call; it takes some 2 ns of the
 * hundreds that these subjects take.
 */
#ifndef FOREIGN_H
#define FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct foreign_timeout *subject_handle;

const char *subject_version(void);

struct subject *subject_create(uint64_t tick_ns, uint64_t capacity);
void subject_destroy(struct subject *subject);

void subject_schedule(struct subject *subject, subject_handle *handle,
    void (*task)(void *arg), void *arg, uint64_t delay_ns);

/* False: the task has begun, or is about to. Either way, it is freed. */
bool foreign_cancel(subject_handle timeout);

void subject_reschedule(
    struct subject *subject, subject_handle *handle, uint64_t delay_ns);

#ifdef __cplusplus
}
#else

static inline void
subject_cancel(struct subject *subject, subject_handle timeout)
{
	(void)subject;
	if (!foreign_cancel(timeout) && SUBJECT_TELLS)
		subject_refused++;
}

#endif

#endif
