/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the client.
 *
 *   connection.c  one socket
 *   route.c       addresses, slots, error replies
 *   embedded.c    a server in this process
 *   node.c        the servers: connecting, Sentinel, the slots of a cluster
 *   call.c        commands of many threads, sent together
 *   task.c        hwt_durable_add and its siblings
 *   worker.c      a worker's threads; attempt.c: its tasks
 *   open.c        options, and the handle
 */
#ifndef HWT_DURABLE_CLIENT_H
#define HWT_DURABLE_CLIENT_H

#include <pthread.h>

#include "modules/durable/client/call.h"
#include "modules/durable/client/connection.h"
#include "modules/durable/client/route.h"

#define MS_NS UINT64_C(1000000)

/*
 * A server that has queues: one; or each master of a cluster that was heard of,
 * until the close.
 */
struct node {
	struct address address;
	/* With the handle's lock: the calls that wait to be sent; whether a
	 * thread, the leader, sends some now; and whether it is to connect anew
	 * before it does. */
	struct call *first, **last;
	bool leading, stale;
	/* The leader's. */
	struct connection *connection;
	/* Of options.replicas: how many were connected when it was last asked,
	 * whether they ever were as many as the options say, and when they were
	 * last seen to be fewer; 0: never. */
	int replicas;
	bool reached;
	uint64_t fell_ns;
};

struct hwt_durable {
	/* Fixed. */
	struct hwt *timer;
	bool own_timer;
	struct hwt_log log; /* write is NULL: stderr */
	char space[HWT_DURABLE_SPACE_MAX + 1];
	char *user, *password, *text; /* text: options.servers */
	struct route_servers servers;
	uint64_t timeout_ns;
	int replicas_wanted;
	struct embedded *embedded; /* of "file:DIR" */

	pthread_mutex_t lock; /* for what follows, and in nodes and calls */
	struct node *node[ROUTE_NODES_MAX];
	unsigned nodes;
	uint16_t node_of[ROUTE_SLOTS]; /* its index + 1; 0: unknown */
	uint64_t refreshed_ns; /* when a cluster was last asked for slots */
	unsigned workers;
};

/* False: it is of the parent of this process. */
bool durable_is_own(const struct hwt_durable *durable);
uint64_t durable_now_ns(const struct hwt_durable *durable); /* the timer's */
/* Waits, by the timer. -ESHUTDOWN. */
int durable_nap(struct hwt_durable *durable, uint64_t ns);
void durable_log(const struct hwt_durable *durable, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * node.c
 */

/* Connects to the node, logs in, and sees that it is a master where a Sentinel
 * has named it. -EACCES; -EAGAIN: no master; or as connection_open. */
int node_connect(struct hwt_durable *durable, const struct node *node,
    struct connection **connection, uint64_t deadline_ns);
/* The node that has a slot, or any where it is not known. Never NULL. */
struct node *node_of_slot(struct hwt_durable *durable, unsigned slot);
/* The node at an address. NULL: no memory, or too many. */
struct node *node_at(
    struct hwt_durable *durable, const struct address *address);
/* slot is at the node from now on. */
void node_set_slot(
    struct hwt_durable *durable, unsigned slot, const struct node *node);
/* Asks a cluster who has which slot, but not twice in 50 ms. -ECONNREFUSED: no
 * node has answered. Others: 0. */
int node_refresh(struct hwt_durable *durable, uint64_t deadline_ns);
void node_destroy(struct node *node);

/*
 * embedded.c
 */

/* -EBUSY, -EILSEQ, and what the system says about the folder; the log says
 * more. */
int embedded_start(struct hwt_durable *durable, const char *folder);
void embedded_stop(struct embedded *embedded); /* NULL: nothing */

/* fd: a socket that is connected to it. -EIO: its store has failed; -EMFILE. */
int embedded_connect(struct hwt_durable *durable, int *fd);

/*
 * call.c
 */

enum call_state {
	CALL_READY, /* the caller's */
	CALL_QUEUED, /* in its node's list */
	CALL_SENT, /* a leader's */
	CALL_ANSWERED /* the caller's again */
};

/* A command for a queue. */
struct call {
	/* The words after the head of the command. In an add, those from
	 * body_at on, after head_words, are its tasks, which may stand in one
	 * command with those of other calls that are the same before them. */
	struct buffer buffer;
	size_t words, head_words, body_at;
	size_t tasks; /* 0: never with others */
	/* Room for so many results; NULL: reply is the answer. */
	unsigned char *results;
	unsigned slot;
	bool writes; /* replicas must have it: options.replicas */

	/* The result: 0 or -errno; reply: NULL, or the caller's. */
	int error;
	redisReply *reply;

	/* Internal. state and next: with the lock. */
	enum call_state state;
	struct call *next;
	struct caller *caller;
	struct node *node;
	struct address from; /* the node's */
	uint64_t deadline_ns;
	unsigned redirects;
	int transient; /* what a server has said last; 0: nothing */
	bool settled; /* with its result */
	bool fixed; /* to its node, whoever has the slot */
	bool asking;
	/* It was refused together with others: it is sent again, alone. */
	bool apart, alone;
	bool unsent; /* with an error: it surely has not been executed */
	/* The leader's: others in the same command, and where it ends in what
	 * is sent. */
	struct call *with;
	size_t end;
};

/* Begins a command: its name and key. */
void call_begin(struct call *call, const struct hwt_durable *durable,
    const char *command, const char *queue);
void call_word(struct call *call, const void *bytes, size_t length);
void call_text(struct call *call, const char *text);
void call_number(struct call *call, uint64_t number);
void call_free(struct call *call);

/* Sends them all and waits until each has its result. */
void call_run(struct hwt_durable *durable, struct call *calls, size_t count);

/* What to do about a reply; redirections and refusals are taken note of. */
void call_judge(struct hwt_durable *durable, const redisReply *reply,
    const struct address *from, struct route_verdict *verdict);

/*
 * task.c
 */

bool name_is_valid(const char *name, size_t most);

#endif
