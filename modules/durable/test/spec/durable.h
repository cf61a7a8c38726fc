/* SPDX-License-Identifier: Apache-2.0 */
/* What the suites share. */
#ifndef HWT_DURABLE_TEST_H
#define HWT_DURABLE_TEST_H

#include "test/spec/support.h"

#include <stdatomic.h>

#include "modules/durable/engine.h"
#include "modules/durable/hwt_durable.h"
#include "modules/durable/route.h"
#include "modules/durable/test/spec/server.h"

/* A server, a handle on it, a log; and what a test starts on the handle. Each
 * test has a process of its own, and so its own. */
extern struct place {
	struct server server;
	struct log_recorder log;
	struct hwt_log hook;
	struct hwt_durable *durable;
	struct hwt_durable *other; /* another handle, or NULL */
	struct proxy *proxy; /* before the server, or NULL */
	struct hwt_durable_scheduler *scheduler;
	struct hwt_durable_worker *worker;
} place;

/* A test whose place is open with its defaults before the body, and is closed
 * after it. */
#define PlaceTest(suite, name) \
	TestBetween(place_open(NULL), place_close(), suite, name)
/* The same with a scheduler. */
#define SchedulerTest(suite, name) \
	TestBetween(               \
	    (place_open(NULL), place_schedule()), place_close(), suite, name)

/* A server of these settings, see server_start, and a log. Returns the options
 * of a handle on it: 2 shards; the level is FSYNCED, timeout_ns 20 s. */
struct hwt_durable_options place_start(const char *const *settings);
struct hwt_durable_options place_options(void);
/* place_start and a handle. change may be NULL: what the options are besides.
 */
void place_open(void (*change)(struct hwt_durable_options *options));
/* Another handle, of these options. */
void place_open_other(const struct hwt_durable_options *options);
void one_shard(struct hwt_durable_options *options);
void place_schedule(void);
/* On the other handle, if there is one. */
void place_work(const struct hwt_durable_worker_options *options);
/* A script without arguments, as pause and resume. */
void place_call(enum script script, uint32_t shard);
/* Stop what was started, if anything was. */
void place_unschedule(void);
void place_unwork(void);
/* All of it. */
void place_close(void);
/* A command for its server; its reply as a number. */
#define ask(...) server_ask(&place.server, NULL, __VA_ARGS__)

/* What an engine needs for the level FSYNCED. */
#define FSYNCED_SETTINGS                                  \
	"--appendonly", "yes", "--appendfsync", "always", \
	    "--aof-load-truncated", "no"

/* How many lines of the log have this in them. */
uint64_t log_lines(const char *text);
#define log_has(text) (log_lines(text) > 0)

/* A task of queue "q" that is due at once. */
struct hwt_durable_task task_of(const char *id);
int add_one(const char *id);
int cancel_one(const char *id);
int reschedule_one(const char *id, uint64_t delay_ns);
/* One that must be accepted; with its id and what it is besides. */
void add_task(const struct hwt_durable_task *task);
#define add_with(name, ...)                                   \
	add_task(&(const struct hwt_durable_task){.id = name, \
	    .id_length = sizeof(name) - 1,                    \
	    .queue = "q",                                     \
	    __VA_ARGS__})
/* So many, in batches, with the ids PREFIX0, PREFIX1 and so on. as is what they
 * are besides; NULL: as task_of has them. */
void add_many(
    const char *prefix, size_t count, const struct hwt_durable_task *as);
/* Of a task that is there. */
struct hwt_durable_info info_of(const char *id);
enum hwt_durable_state state_of(const char *id);
void await_state(const char *id, enum hwt_durable_state state);
struct hwt_durable_stats stats_now(void);
/* Until at least so many have succeeded. */
void await_succeeded(uint64_t count);
/* How often the engine has executed a command. */
uint64_t calls_of(const char *command);
/* Waits until a condition holds, for as long as any machine needs. */
#define AWAIT(condition)                                             \
	do {                                                         \
		uint64_t await_until = monotonic_ns() + HWT_SEC(60); \
		while (!(condition)) {                               \
			cr_assert(monotonic_ns() < await_until,      \
			    "not within a minute: %s", #condition);  \
			sleep_ns(HWT_MS(5));                         \
		}                                                    \
	} while (0)

/* A callback that does nothing, and answers 0. */
hwt_durable_callback done;

/* A proxy before a server: it can answer itself, and lose what it wants. */
enum proxied {
	PROXY_PASS, /* the server answers */
	PROXY_SAY, /* proxy->say is the answer */
	PROXY_LOSE, /* the server answers, and the connection is cut */
	PROXY_CUT, /* the connection is cut */
	PROXY_KEEP /* no answer */
};

struct proxy {
	/* Called for each command, by one thread of several; count is how many
	 * commands of that name there were before. */
	enum proxied (*judge)(struct proxy *proxy, const char *name,
	    const redisReply *command, uint64_t count);
	char say[512];
	const char *path; /* of the server; NULL: none */
	void *data;
	/* As the options have it. */
	char servers[SERVER_FOLDER + 16];
	_Atomic uint64_t connections, calls; /* calls: of scripts */
	/* Private. */
	char own[SERVER_FOLDER + 8];
	int listening;
	pthread_t thread;
	pthread_t client[256];
	int socket[256];
	uint32_t clients;
	_Atomic uint64_t stopping;
	pthread_mutex_t lock;
	struct {
		char name[32];
		uint64_t count;
	} seen[32];
};

/* In the folder of a server. */
void proxy_start(struct proxy *proxy, struct server *server);
void proxy_stop(struct proxy *proxy);

/* Starts a proxy before the place's server, until place_close. Returns the
 * options of a client behind it. */
struct hwt_durable_options place_behind(struct proxy *proxy);

#endif
