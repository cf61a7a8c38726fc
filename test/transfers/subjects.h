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

#endif
