/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of hwtctl, and what they share.
 *
 *   hwtctl.c            the usage, the options, which command has which
 *   hwtctl-tasks.c      add, cancel, reschedule, show
 *   hwtctl-walk.c       list, dead, check
 *   hwtctl-queues.c     pause, resume, limit
 *   hwtctl-schedules.c  schedule
 *   hwtctl-space.c      init, stat, clock
 *   hwtctl-options.c    what the options say
 */
#ifndef HWT_DURABLE_HWTCTL_H
#define HWT_DURABLE_HWTCTL_H

#include "modules/durable/durable.h"
#include "options.h"

/* The options of the command line, before any command runs: NULL is not given,
 * "" a flag that is. */
struct given {
	const char *shards, *slots, *tick, *retention, *level, *queue, *in, *at,
	    *id, *attempts, *payload, *from, *state, *json, *prometheus, *all,
	    *base64, *replace, *repair, *reset, *expires_in, *expires_at,
	    *every, *cron, *zone, *missed, *retry_first, *retry_factor,
	    *retry_most, *priority, *at_once, *rate;
};
extern struct given given;
extern const struct option_row hwtctl_rows[];

/* Each of these ends the process if what it reads is wrong. */

/* Options stand before the command or after it. All that are given are among
 * these, each between blanks. */
void options_fit(const char *command, const char *options);

/* An id of the command line, which it may change. */
struct engine_argument id_read(char *text);

/* These set what a task has of the options: --expires-in or --expires-at, those
 * of its retries, --priority, and --payload. */
void expires_read(struct hwt_durable_task *task);
void retries_read(struct hwt_durable_task *task);
void priority_option_read(struct hwt_durable_task *task);
void payload_find(struct hwt_durable_task *task);

/* The commands: argv has what stands behind their names. */
enum status run_add(int argc, char **argv);
enum status run_cancel(int argc, char **argv);
enum status run_reschedule(int argc, char **argv);
enum status run_show(int argc, char **argv);
enum status run_list(int argc, char **argv);
enum status run_dead(int argc, char **argv);
enum status run_check(int argc, char **argv);
enum status run_pause(int argc, char **argv);
enum status run_resume(int argc, char **argv);
enum status run_limit(int argc, char **argv);
enum status run_schedule(int argc, char **argv);
enum status run_init(int argc, char **argv);
enum status run_stat(int argc, char **argv);
enum status run_clock(int argc, char **argv);

#endif
