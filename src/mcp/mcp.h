/* The Model Context Protocol: the daemon's operations as tools, resources and tasks of an MCP server.
 *
 * The way of a message. A transport (src/api/mcp.c for POST /mcp, channel.c for `glovebox mcp`) reads one JSON-RPC
 * message, bounded, and makes a struct mcp_call of each request. mcp_call_start finds the method in a table (server.c),
 * which answers at once or asks the session layer. The answer leaves by the transport's link, once. Both revisions of
 * the protocol ("eras") use it; message.h distinguishes them. No state belongs to a connection: arguments name
 * sandboxes, runs and tasks. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json_writer.h"
#include "mcp/message.h"
#include "mcp/output.h"
#include "session/caller.h"

enum {
        MCP_MESSAGE_MAX = 1536 << 10, /* of one that comes in: it is parsed at once, at 12 ms for each MiB */
        MCP_CALLS_MAX = 64,           /* under way on one connection of `glovebox mcp` */
        MCP_ANSWER_MAX = 12 << 20,
        MCP_TEXT_MAX = 24 << 10,      /* of a run's output in one answer, in bytes */
        MCP_FILE_TEXT_MAX = 32 << 10, /* of a file in one answer */
        MCP_IMAGES_MAX = 8,
        MCP_IMAGE_MAX = 2 << 20,      /* base64 */
        MCP_LINKS_MAX = 32,           /* artifacts that are linked in one answer */
        MCP_RESOURCE_MAX = 4 << 20,   /* bytes of a file that resources/read gives */
        MCP_YIELD_MS = 45 * 1000,     /* a run that takes longer goes on in the background: clients give up at 60 s */
        MCP_TASK_YIELD_MS = 5 * 1000, /* the same where the client takes a task for it */
        MCP_WAIT_MAX_MS = 50 * 1000,  /* that read_output waits for more */
        MCP_PROGRESS_MS = 100,        /* between two notifications at least */
        MCP_BEAT_MS = 5 * 1000,       /* and at most */
        MCP_PREFIX_MAX = 64,
};

struct session_manager;
struct mcp_call;
struct mcp_tool;

/* The client of a call. The transport owns it; it lives longer than the calls that point to it. */
struct mcp_peer {
        struct session_manager *manager;
        const char *owner;      /* a key's name, or "" for the operator */
        const char *from;       /* the client's address, or NULL */
        char prefix[MCP_PREFIX_MAX + 1]; /* of its sandboxes' names; "": those of the key */
        bool is_private;        /* the prefix is a secret of this client's, so handles may be short */
        const json_t *options;  /* of session.create, for new sandboxes; or NULL */
        const char *place;      /* sentences for the model: what the sandboxes can reach */
        bool has_fixtures;      /* tools and resources of the conformance tests */
};

/* The functions of a transport. */
struct mcp_link {
        /* Without room for it, a notification may be dropped. */
        void (*notify)(struct mcp_call *call, const char *text, size_t size);
        /* Once; then call->link is NULL. */
        void (*respond)(struct mcp_call *call, int status, const char *text, size_t size);
        void (*accepted)(struct mcp_call *call, const char *sandbox, const char *run_id); /* or NULL */
        int (*count_run)(struct mcp_call *call, struct err *err); /* or NULL: there is no quota */
        int (*admit_sandbox)(struct mcp_call *call, const char *name, struct err *err);  /* or NULL */
        void (*release)(struct mcp_call *call); /* lets go of the memory */
};

/* One request that has no answer yet, or whose run continues without a waiting client. */
struct mcp_call {
        struct caller caller; /* the first: the session layer's end of it */
        const struct mcp_link *link; /* NULL: it was answered, or no client waits */
        const struct mcp_link *home; /* the same, for the whole life */
        struct mcp_peer *peer;
        enum mcp_era era;
        json_t *id;
        json_t *progress_token; /* NULL: none is wanted */
        bool takes_tasks;       /* its client can follow a task */
        bool wants_log;         /* of the modern era, for the fixtures */

        bool is_asked;  /* the session layer holds the caller */
        bool is_full;   /* a read has all that one answer may hold */
        void (*finish)(struct mcp_call *call, const char *text, size_t size); /* what to do with the answer */
        char sandbox[72];  /* the handle that it is about */
        char run_id[33];   /* "": none yet */
        bool is_run;       /* its own run, and not one that is read again */
        bool is_task;      /* the answer is that of tasks/get */
        bool is_resource;
        char tool[64];
        int64_t began_ms;  /* the time of day, of a task */
        struct mcp_output output;
        uint64_t progress, progressed_ms, started_ms;
        struct loop_timer *timer, *beat;
        const void *context; /* the handler's own */
};

/* Fills a fresh call, zeroed by the transport. `message` is borrowed for the call of mcp_call_start only. */
void mcp_call_init(struct mcp_call *call, const struct mcp_link *link, struct mcp_peer *peer,
                   const struct mcp_message *message);

/* Carries it out. The call may be gone when this returns. */
void mcp_call_start(struct mcp_call *call, const struct mcp_message *message);

/* The client cancelled the call: the run is ended, and nothing more is sent. */
void mcp_call_cancel(struct mcp_call *call);

/* The client disconnected without cancelling. A run of the modern era ends, one of the older era continues. */
void mcp_call_leave(struct mcp_call *call, bool ends_run);

/* The transport ends: frees the call. */
void mcp_call_drop(struct mcp_call *call);

/* ---- for the methods and tools ---- */

/* Answers with an error of JSON-RPC, and ends the call. Takes the reference to data, which may be NULL. */
void mcp_call_fail(struct mcp_call *call, const struct mcp_error *error);

/* Answers with a tool's result that describes the error, and ends the call. */
void mcp_call_refuse(struct mcp_call *call, const struct err *err);

/* Answers with a tool's result of one text, and ends the call. */
void mcp_call_say(struct mcp_call *call, const char *text, size_t size, bool is_error);

/* Answers with these members of the result object (as text, without braces; may be empty), and ends the call. `meta`:
 * members of _meta, or NULL. */
void mcp_call_result(struct mcp_call *call, const struct json_writer *members, const char *meta);

/* Sends a notification that belongs to the call; params as text. */
void mcp_call_notify(struct mcp_call *call, const char *method, const char *params, size_t size);

/* Around an operation (daemon/operation.h): `finish` gets the answer's text; this handles what the operation returned,
 * and a refusal goes to the model. */
void mcp_call_expect(struct mcp_call *call, void (*finish)(struct mcp_call *call, const char *text, size_t size));
void mcp_call_settle(struct mcp_call *call, int code, const struct err *err);

/* Ends the wait for a run at that time (0: never), with the output so far. */
void mcp_call_wait(struct mcp_call *call, uint64_t wait_ms);
