/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the client.
 *
 *   open.c        options, the handle, any command
 *   task.c        hwt_durable_add and its siblings
 *   loop.c        the handle's thread, and how others reach it
 *   request.c     how commands are built
 *   connection.c  what is sent together, and the answers
 *   route.c       which server: Sentinel, the slots of a cluster, error replies
 *   embedded.c    a server in this process
 *   worker.c      workers
 *
 * THREADS. One thread of the handle, the loop, owns all sockets, nodes and
 * requests. Others reach it only by a mailbox of hwt, which is also the
 * executor of all timeouts. So nothing has a lock:
 *
 *   edge      from -> to                       ordered by
 *   request   a caller -> loop                 hwt_mailbox_post
 *   result    loop -> that caller              the waiter's semaphore
 *   late      timer's worker -> loop           the mailbox as executor
 *
 * and those of worker.c. What is fixed after the open may be read by all. The
 * loop waits for nothing but epoll and the look-up of a name. A request's done
 * is called by the loop itself, never inside another function, and so are
 * connection_flush and workers_step.
 */
#ifndef HWT_DURABLE_CLIENT_H
#define HWT_DURABLE_CLIENT_H

#include <hiredis/hiredis.h>
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
#define PASSWORD_MAX 512

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
	const char *name; /* of the master or the folder; a part of the text */
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
	struct node *node; /* NULL: who has the slot */
	struct connection *own; /* NULL: the node's */
	void (*done)(struct request *request); /* on the loop */
	void *ctx;

	/* The result: 0 or -errno; before, what it waits for. reply: NULL, or
	 * the maker's; it may be the error reply by which error was chosen. */
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

/* A reply that is to come, and then is kept until the message has ended. */
struct place {
	enum {
		PLACE_COMMAND,
		PLACE_JOINED, /* the reply is a part of that before it */
		PLACE_AUTH,
		PLACE_ROLE,
		PLACE_WAIT,
		PLACE_OTHER /* of no interest */
	} kind;
	bool answered;
	struct request *request; /* NULL: it had no more time, or none */
	size_t tasks;
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
	bool ready; /* the greeting was answered */
	bool stale; /* it cannot serve now; another may be the master */
	bool writing; /* epoll says when there is room */
	bool certain; /* the replicas have the message */
	size_t bytes; /* of the answer that is read */
	uint64_t heard_ns; /* when it last answered, or was asked first */

	struct request *first, **last; /* the queue */
	/* The message. With its ASKING, WAIT and ROLE. */
	struct place place[PLACES_MAX + 3];
	unsigned sent, answered;

	hwt_timeout timer; /* the end of a pause, or the limit of opening */
	bool paused;
};

/* A server, until the close. */
struct node {
	struct address address;
	bool is_sentinel;
	bool
	    is_master; /* that Sentinels know; without a host, they are asked */
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
	unsigned next; /* whom */
};

struct hwt_durable {
	struct hwt_post post; /* first; the loop's begin */
	/* Fixed. */
	struct hwt *timer;
	bool own_timer;
	struct hwt_log log; /* write is NULL: stderr */
	char space[HWT_DURABLE_SPACE_MAX + 1];
	char password[PASSWORD_MAX + 3]; /* "": none */
	char *user, *text; /* text: options.servers */
	struct servers servers;
	uint64_t timeout_ns;
	int replicas_wanted;
	struct embedded *embedded; /* of "file:DIR" */
	struct hwt_mailbox *mailbox;
	int epoll;
	struct hwt_pool *thread; /* the loop */

	/* The loop's. */
	struct node *node[NODES_MAX];
	unsigned nodes;
	uint16_t node_of[SLOTS]; /* its index + 1; 0: unknown */
	struct finder finder;
	struct connection *connections;
	struct hwt_durable_worker *workers;
	struct request *ended; /* for which done is to be called */
	bool flush; /* another look at these is needed */
	bool over;
};

/* open.c. Of a parent's handle: false. */
bool durable_is_own(const struct hwt_durable *durable);
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
uint64_t now_ns(void); /* CLOCK_BOOTTIME */
int loop_start(struct hwt_durable *durable);
void loop_stop(struct hwt_durable *durable);
void requests_run(
    struct hwt_durable *durable, struct request *requests, size_t count);
void loop_call(
    struct hwt_durable *durable, void (*function)(void *arg), void *arg);

/* request.c */
void request_begin(struct request *request, const struct hwt_durable *durable,
    const char *command, const char *queue);
void request_word(struct request *request, const void *bytes, size_t length);
void request_text(struct request *request, const char *text);
void request_number(struct request *request, int64_t number);
void request_free(struct request *request);

/* connection.c */
void request_start(struct hwt_durable *durable, struct request *request);
/* node may be NULL at first. */
void connection_create(struct connection *connection,
    struct hwt_durable *durable, struct node *node);
void connection_destroy(struct connection *connection);
void connection_close(struct connection *connection);
void connection_event(struct connection *connection, uint32_t events);
void connection_flush(struct connection *connection); /* sends what it can */

/* route.c */
bool servers_read(struct servers *servers, char *text);
int nodes_create(struct hwt_durable *durable); /* -ENOMEM */
void nodes_destroy(void *durable); /* it ends the loop */
/* Of an answer of a Sentinel, or to CLUSTER SLOTS. False: it is none. */
bool nodes_take(struct request *request, const redisReply *reply);
/* The connection that leads to the node of a request. */
struct connection *node_route(struct request *request);
/* Its server was lost, or is no master: others are asked. */
void node_lost(struct node *node);
/* False: a Sentinel is asked where it is. */
bool node_is_known(const struct node *node);
/* 0: it is no error. */
int reply_error(const redisReply *reply);
/* Whether the error passes, perhaps at another node; error is for when it does
 * not. */
bool reply_asks_again(struct request *request, const redisReply *reply);

/* worker.c. For those that have been woken. */
void workers_step(struct hwt_durable *durable);

/* embedded.c. -EBUSY, -EILSEQ, and what the system says about the folder; the
 * log says more. */
int embedded_start(struct hwt_durable *durable);
void embedded_stop(struct embedded *embedded); /* NULL: nothing */
/* A socket that is connected to it. -EIO: its store has failed; -EMFILE. */
int embedded_connect(struct embedded *embedded);

#endif
