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

/* A server, a handle on it, a log. */
struct place {
	struct server server;
	struct log_recorder log;
	struct hwt_log hook;
	struct hwt_durable *durable;
};

/* change may be NULL: what the options are besides. 2 shards; the level is
 * FSYNCED, timeout_ns 20 s. */
void place_open(
    struct place *place, void (*change)(struct hwt_durable_options *options));
void place_close(struct place *place);
struct hwt_durable_options place_options(struct place *place);

/* Whether a line of the log has this in it. */
bool log_has(struct log_recorder *log, const char *text);

/* A task of queue "q" that is due at once. */
struct hwt_durable_task task_of(const char *id);
int add_one(struct place *place, const char *id);
enum hwt_durable_state state_of(struct place *place, const char *id);
void await_state(
    struct place *place, const char *id, enum hwt_durable_state state);
struct hwt_durable_stats stats_of(struct place *place);

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

/* Starts a proxy before the place's server. Returns the options of a client
 * behind it. */
struct hwt_durable_options place_behind(
    struct place *place, struct proxy *proxy);

#endif
