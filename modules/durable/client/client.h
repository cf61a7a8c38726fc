/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the client.
 *
 *   open.c        options, the handle, any command
 *   task.c        hwt_durable_add and its siblings
 *   loop.c        the handle's thread, and how others reach it
 *   request.c     commands: how they are built, and what becomes of them
 *   connection.c  what is sent together, and the answers
 *   route.c       which server: Sentinel, the slots of a cluster, error replies
 *   embedded.c    a server in this process
 *   worker.c      workers
 *
 * THREADS. One thread of the handle, the loop, owns all sockets, nodes and
 * requests. Others reach it only by a mailbox of hwt, which is also the
 * executor of all timeouts. So nothing of it has a lock:
 *
 *   edge      from -> to                       ordered by
 *   request   a caller -> loop                 hwt_mailbox_post
 *   result    loop -> that caller              the waiter's semaphore
 *   kick      a worker's threads -> loop       hwt_mailbox_post
 *   attempts  loop <-> a worker's threads      the worker's lock
 *   late      timer's worker -> loop           the mailbox as executor
 *
 * What is fixed after the open may be read by all. The loop holds no lock while
 * it calls the log, and waits for nothing but epoll and the look-up of a name.
 * A request's done is called by the loop itself, never inside another function,
 * and so is connection_flush.
 */
#ifndef HWT_DURABLE_CLIENT_H
#define HWT_DURABLE_CLIENT_H

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "modules/durable/client/call.h"

struct connection;
struct embedded;
struct node;

#define MS_NS UINT64_C(1000000)
#define SLOTS 16384 /* of a cluster */
#define NODES_MAX 256
#define SERVERS_MAX 16
#define PLACES_MAX 256 /* requests that are sent together */

/* "": it is not known. */
struct address {
	char host[256]; /* if there is no port, the path of a socket */
	int port;
};

struct servers {
	enum {
		SERVER_SINGLE,
		SERVER_FILE, /* in this process */
		SERVER_SENTINEL, /* address: Sentinels; name: the master's */
		SERVER_CLUSTER /* address: some of its nodes */
	} kind;
	unsigned count;
	struct address address[SERVERS_MAX];
	const char *name, *folder; /* parts of the text */
};

/* What an error reply means. */
struct meaning {
	const char *word; /* which it begins with */
	enum {
		ACTION_NONE, /* the reply is the result; error says why */
		/* Perhaps at another node; error is for when it lasts. */
		ACTION_AGAIN,
		ACTION_MOVED, /* its slot is elsewhere from now on */
		ACTION_ASK /* this once, another node is to be asked */
	} action;
	int error; /* -errno; 0: it is no error reply */
};

/* A command. */
struct request {
	/* What its maker says. The words as they are sent; in an add, those
	 * from body_at on, after head_words, are its tasks, which may share a
	 * command with other requests' tasks that begin alike. */
	struct buffer {
		char *bytes;
		size_t length, size, words;
		bool failed; /* there was no memory */
	} buffer;
	size_t head_words, body_at, tasks;
	unsigned char *results; /* room for one of each task */
	unsigned slot;
	bool writes; /* replicas must have it: options.replicas */
	bool finds; /* the answer says where others go: nodes_take */
	uint64_t timeout_ns; /* 0: as in the options */
	/* NULL: who has the slot. Otherwise it does not wait for a node that is
	 * away. */
	struct node *node;
	struct connection *own; /* NULL: the node's */
	void (*done)(struct request *request); /* on the loop */
	void *ctx;

	/* The result: 0 or -errno. reply: NULL, or the maker's; it may be the
	 * error reply by which error was chosen. */
	int error;
	redisReply *reply;

	/* The loop's. */
	struct hwt_durable *durable;
	hwt_timeout timeout;
	struct request *next; /* in the queue, or in those that have ended */
	struct connection *connection;
	struct node *asked; /* this once */
	bool asking; /* ASKING is sent before it */
	bool alone; /* it was refused together with others */
};

/* For a request that was sent, until the message has ended. */
struct place {
	struct request *request; /* NULL: it had no more time */
	redisReply *reply;
	size_t tasks;
	bool writes, asking;
	bool first; /* of a command; those behind it share it */
};

/*
 * To one server. Requests wait in its queue; a message of them is sent when the
 * one before has been answered: so concurrent adds gather, and become one
 * command.
 */
struct connection {
	struct hwt_durable *durable;
	struct connection *link; /* in the list of the handle */
	struct node *node; /* where it leads to */
	redisContext *context; /* NULL: closed */
	bool ready; /* it has connected and logged in */
	redisReplyObjectFunctions functions; /* of its reader */
	__typeof__(((redisReplyObjectFunctions *)0)->createArray) create_array;
	size_t bytes, elements; /* of the answer that is read */
	bool writing; /* epoll says when there is room */
	/* Replies that are to come, before or behind the requests'. */
	bool auth, role, wait;
	bool stale; /* it cannot serve now; another may be the master */
	bool certain; /* the replicas have the message */
	uint64_t heard_ns; /* when it last answered, or was asked first */

	struct request *first, **last; /* the queue */
	struct place place[PLACES_MAX]; /* the message */
	unsigned sent, answered;

	hwt_timeout timer; /* the end of a pause, or the limit of opening */
	bool paused;
};

/* A server that has queues: one; or each master of a cluster that was heard of,
 * until the close. */
struct node {
	struct address address;
	struct connection connection;
	/* Of options.replicas: how many are connected; whether they ever were
	 * as many as the options say; when they were last seen to be fewer. */
	int replicas;
	bool reached;
	uint64_t fell_ns;
};

/* Asks a Sentinel where the master is, or a cluster for its slots. */
struct finder {
	struct request request;
	bool busy;
	unsigned tried, next;
	struct node *sentinel; /* NULL: there are none */
};

struct hwt_durable {
	/* Fixed. */
	struct hwt *timer;
	bool own_timer;
	struct hwt_log log; /* write is NULL: stderr */
	char space[HWT_DURABLE_SPACE_MAX + 1];
	char *user, *password, *text; /* text: options.servers */
	struct servers servers;
	uint64_t timeout_ns;
	int replicas_wanted;
	struct embedded *embedded; /* of "file:DIR" */
	struct hwt_mailbox *mailbox;
	int epoll;
	pthread_t loop;
	bool running; /* there is a loop */

	/* The loop's. */
	struct node *node[NODES_MAX];
	unsigned nodes;
	uint16_t node_of[SLOTS]; /* its index + 1; 0: unknown */
	struct finder finder;
	struct connection *connections;
	struct request *ended; /* for which done is to be called */
	bool flush; /* another look at connections and ended is needed */
	bool over;

	atomic_uint workers;
};

/* open.c. Of a parent's handle: false. */
bool durable_is_own(const struct hwt_durable *durable);
uint64_t durable_now_ns(const struct hwt_durable *durable); /* the timer's */
void durable_log(const struct hwt_durable *durable, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* task.c */
bool name_is_valid(const char *name, size_t most);

static inline uint64_t
ms_of(uint64_t ns)
{
	return ns / MS_NS + (ns % MS_NS != 0);
}

/* loop.c. Not on the loop: requests_run waits until each has its result,
 * loop_call until function(arg) has returned there. */
int loop_start(struct hwt_durable *durable);
void loop_stop(struct hwt_durable *durable);
void requests_run(
    struct hwt_durable *durable, struct request *requests, size_t count);
void loop_call(
    struct hwt_durable *durable, void (*function)(void *arg), void *arg);
/* A thread without signals. 0 or -EAGAIN. */
int durable_thread(pthread_t *thread, void *(*run)(void *), void *arg);

/* request.c */
void request_begin(struct request *request, const struct hwt_durable *durable,
    const char *command, const char *queue);
void request_word(struct request *request, const void *bytes, size_t length);
void request_text(struct request *request, const char *text);
void request_number(struct request *request, int64_t number);
void request_free(struct request *request);
/* On the loop: it is started; it has an answer, which may ask for another
 * attempt; it has its result. */
void request_start(struct hwt_durable *durable, struct request *request);
void request_answer(struct request *request, redisReply *reply);
void request_end(struct request *request, int error, redisReply *reply);

/* connection.c. node may be NULL at first. */
void connection_create(struct connection *connection,
    struct hwt_durable *durable, struct node *node);
void connection_destroy(struct connection *connection);
/* What was sent has no result. */
void connection_close(struct connection *connection);
void connection_event(struct connection *connection, uint32_t events);
void connection_queue(struct connection *connection, struct request *request);
void connection_flush(struct connection *connection); /* sends what it can */
/* For a while nothing is sent; then the queue is routed anew. False: there is
 * no timeout for that. */
bool connection_pause(struct connection *connection);
/* A request has no more time: it is taken out of the queue or its place, and a
 * server that is silent is left. True: it was sent. */
bool connection_forget(
    struct connection *connection, const struct request *request);

/* route.c */
bool servers_read(struct servers *servers, const char *text);
const struct meaning *reply_judge(const redisReply *reply);
int nodes_create(struct hwt_durable *durable); /* -ENOMEM */
void nodes_destroy(void *durable); /* it ends the loop */
/* Of an answer of a Sentinel, or to CLUSTER SLOTS. False: it is none. */
bool nodes_take(struct request *request, const redisReply *reply);
/* The connection that leads to the node of a request. */
struct connection *node_route(struct request *request);
/* Takes note of MOVED or ASK. False: it names no node. */
bool node_redirect(struct request *request, const char *text, bool asking);
/* Its server was lost, or is no master: asks others. */
void node_lost(struct connection *connection);
/* False: a Sentinel is asked where it is. */
bool node_is_known(struct connection *connection);

/* embedded.c. -EBUSY, -EILSEQ, and what the system says about the folder; the
 * log says more. */
int embedded_start(struct hwt_durable *durable, const char *folder);
void embedded_stop(struct embedded *embedded); /* NULL: nothing */
/* A socket that is connected to it. -EIO: its store has failed; -EMFILE. */
int embedded_connect(struct hwt_durable *durable, int *fd);

#endif
