/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted beside hwt; compiled as hwt is. Each is one operation of a
 * core. */
#ifndef SUBJECTS_H
#define SUBJECTS_H

void own_counter(unsigned core);
void shared_counter(unsigned core);
void stack_pair(unsigned core); /* pushes onto a Treiber stack, and pops */

void mutex_wheel_open(void);
void mutex_wheel_pair(unsigned core);
void mutex_wheel_touch(unsigned core);
/* The core's timeout; to cancel it, from any core. */
void mutex_wheel_schedule_one(unsigned core);
void mutex_wheel_cancel_one(unsigned core);

#endif
