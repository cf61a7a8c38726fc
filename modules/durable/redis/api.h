/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the module interface of Redis 7 and Valkey that hwt.so uses. The
 * server gives a module one function, which finds all others by name.
 */
#ifndef HWT_DURABLE_REDIS_API_H
#define HWT_DURABLE_REDIS_API_H

#include <stddef.h>
#include <stdint.h>

#define API_OK 0
#define API_ERR 1
#define API_READ 1
#define API_WRITE 2
#define API_KEY_EMPTY 0
#define API_VERSION 1

/* Of context_flags. */
#define API_IN_SCRIPT (1 << 0)
#define API_IN_MULTI (1 << 1)
#define API_MASTER (1 << 2)
#define API_REPLICATED (1 << 12)
#define API_LOADING (1 << 13)
#define API_NO_BLOCKING (1 << 21)

typedef struct RedisModuleCtx context;
typedef struct RedisModuleString string;
typedef struct RedisModuleKey key;
typedef struct RedisModuleType value_type;
typedef struct RedisModuleIO file;
typedef struct RedisModuleDigest digest;
typedef struct RedisModuleBlockedClient blocked_client;
typedef struct RedisModuleCallReply call_reply;
typedef uint64_t timer_id;

typedef int command_function(context *ctx, string **argv, int argc);

/* What the server calls of a type; it reads as many as the version has. */
struct type_methods {
	uint64_t version; /* 4: Redis 7.0 */
	void *(*rdb_load)(file *from, int version);
	void (*rdb_save)(file *to, void *value);
	void (*aof_rewrite)(file *to, string *name, void *value);
	size_t (*mem_usage)(const void *value);
	void (*digest)(digest *of, void *value);
	void (*free)(void *value);
	void *aux_load, *aux_save;
	int aux_save_triggers;
	size_t (*free_effort)(string *name, const void *value);
	void *unlink;
	void *(*copy)(string *from, string *to, const void *value);
	void *defrag, *mem_usage2, *free_effort2, *unlink2, *copy2;
};

struct event {
	uint64_t id, version;
};
#define EVENT_ROLE 0
#define EVENT_CRON 8
#define EVENT_CONFIG 16

typedef void event_function(
    context *ctx, struct event event, uint64_t sub_event, void *data);

/* name here, name there, result, parameters */
#define API_FUNCTIONS(F)                                                      \
	F(alloc, Alloc, void *, (size_t))                                     \
	F(calloc, Calloc, void *, (size_t, size_t))                           \
	F(malloc_size, MallocSize, size_t, (void *))                          \
	F(realloc, Realloc, void *, (void *, size_t))                         \
	F(free, Free, void, (void *))                                         \
	F(set_attributes, SetModuleAttribs, void,                             \
	    (context *, const char *, int, int))                              \
	F(create_command, CreateCommand, int,                                 \
	    (context *, const char *, command_function *, const char *, int,  \
		int, int))                                                    \
	F(create_type, CreateDataType, value_type *,                          \
	    (context *, const char *, int, struct type_methods *))            \
	F(context_flags, GetContextFlags, int, (context *))                   \
	F(string_bytes, StringPtrLen, const char *,                           \
	    (const string *, size_t *))                                       \
	F(create_string, CreateString, string *,                              \
	    (context *, const char *, size_t))                                \
	F(free_string, FreeString, void, (context *, string *))               \
	F(selected_db, GetSelectedDb, int, (context *))                       \
	F(select_db, SelectDb, int, (context *, int))                         \
	F(open_key, OpenKey, key *, (context *, string *, int))               \
	F(close_key, CloseKey, void, (key *))                                 \
	F(key_kind, KeyType, int, (key *))                                    \
	F(key_type, ModuleTypeGetType, value_type *, (key *))                 \
	F(key_value, ModuleTypeGetValue, void *, (key *))                     \
	F(set_value, ModuleTypeSetValue, int, (key *, value_type *, void *))  \
	F(reply_number, ReplyWithLongLong, int, (context *, long long))       \
	F(reply_array, ReplyWithArray, int, (context *, long))                \
	F(reply_bytes, ReplyWithStringBuffer, int,                            \
	    (context *, const char *, size_t))                                \
	F(reply_null, ReplyWithNull, int, (context *))                        \
	F(reply_error, ReplyWithError, int, (context *, const char *))        \
	F(reply_call, ReplyWithCallReply, int, (context *, call_reply *))     \
	F(replicate, Replicate, int,                                          \
	    (context *, const char *, const char *, ...))                     \
	F(replicate_verbatim, ReplicateVerbatim, int, (context *))            \
	F(log, Log, void, (context *, const char *, const char *, ...))       \
	F(call, Call, call_reply *,                                           \
	    (context *, const char *, const char *, ...))                     \
	F(free_reply, FreeCallReply, void, (call_reply *))                    \
	F(reply_element, CallReplyArrayElement, call_reply *,                 \
	    (call_reply *, size_t))                                           \
	F(reply_text, CallReplyStringPtr, const char *,                       \
	    (call_reply *, size_t *))                                         \
	F(block_on_keys, BlockClientOnKeys, blocked_client *,                 \
	    (context *, command_function *, command_function *,               \
		void (*)(context *, void *), long long, string **, int,       \
		void *))                                                      \
	F(unblock, UnblockClient, int, (blocked_client *, void *))            \
	F(signal_ready, SignalKeyAsReady, void, (context *, string *))        \
	F(avoid_traffic, AvoidReplicaTraffic, int, (void))                    \
	F(create_timer, CreateTimer, timer_id,                                \
	    (context *, long long, void (*)(context *, void *), void *))      \
	F(stop_timer, StopTimer, int, (context *, timer_id, void **))         \
	F(subscribe, SubscribeToServerEvent, int,                             \
	    (context *, struct event, event_function *))                      \
	F(digest_number, DigestAddLongLong, void, (digest *, long long))      \
	F(digest_end, DigestEndSequence, void, (digest *))                    \
	F(save_bytes, SaveStringBuffer, void, (file *, const char *, size_t)) \
	F(load_bytes, LoadStringBuffer, char *, (file *, size_t *))           \
	F(emit, EmitAOF, void, (file *, const char *, const char *, ...))

struct api {
#define API_MEMBER(here, there, result, parameters) result(*here) parameters;
	API_FUNCTIONS(API_MEMBER)
#undef API_MEMBER
};
extern struct api api;

#endif
