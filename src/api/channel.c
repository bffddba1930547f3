#include "api/channel.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/sandbox.h"
#include "api/service.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/daemon.h"
#include "daemon/socket_client.h"
#include "session/session_config.h"

struct channel {
        struct service *service;
        struct visitor visitor;
        uint8_t digest[SHA256_SIZE]; /* of the key that opened it */
};

/* The operations that a key may request. All others are for the operator. */
static const struct allowed_operation {
        const char *op;
        bool is_run, makes_sandbox;
} allowed[] = {
        { "execute", true, true },
        { "command", true, true },
        { "session.install", true, true },
        { "session.create", false, true },
        { "run.read", false, false },
        { "run.show", false, false },
        { "run.cancel", false, false },
        { "session.show", false, false },
        { "session.list", false, false },
        { "session.log", false, false },
        { "session.remove", false, false },
        { "session.interrupt", false, false },
        { "session.restart", false, false },
        { "session.hibernate", false, false },
        { "session.set", false, false },
        { "session.adopt", false, false },
        { "file.read", false, false },
        { "file.write", false, false },
        { "file.list", false, false },
        { "file.stat", false, false },
        { "file.remove", false, false },
        { "file.mkdir", false, false },
        { "file.move", false, false },
        { "artifact.list", false, false },
        { "ping", false, false },
};

/* Options that have a meaning only for a program on this host. */
static const char *const foreign[] = { "script", "script_at", "operator" };

/* ---- one request ---- */

static struct share_claim channel_claim(const struct channel *channel, uint64_t key_max) {
        return (struct share_claim) { .key = channel->visitor.owner, .amount = 1, .key_max = key_max };
}

static int check_rate(struct channel *channel, struct err *err) {
        unsigned wait_s = quota_count_request(channel->visitor.use, loop_now_ms());
        if (wait_s == 0)
                return 0;
        channel->service->counted.turned_away++;
        return err_set(err, ERR_LIMIT, "this key has sent more requests in a minute than it may; wait %u s", wait_s);
}

static int check_timeout(const struct channel *channel, json_t *json, struct err *err) {
        const struct caller caller = { .manager = channel->service->manager, .owner = channel->visitor.owner };
        json_int_t timeout_ms = json_integer_value(json_object_get(json, "timeout_ms"));
        const struct limits limits = { .timeout_ms = timeout_ms > 0 ? (uint64_t) timeout_ms : 0 };
        return session_config_check_ceiling(&caller, &limits, err);
}

/* The rights for this operation of a key; NULL: see err. */
static const struct allowed_operation *find_allowed(json_t *json, struct err *err) {
        const char *op = json_string_value(json_object_get(json, "op"));
        size_t i = 0;
        while (i < ELEMENTS(allowed) && (!op || strcmp(allowed[i].op, op) != 0))
                i++;
        if (i == ELEMENTS(allowed)) {
                (void) err_set(err, ERR_REFUSED, "an API key may not request the operation \"%.60s\"", op ? op : "");
                return NULL;
        }
        for (size_t n = 0; n < ELEMENTS(foreign); n++)
                if (json_object_get(json, foreign[n])) {
                        (void) err_set(err, ERR_REFUSED, "an API key may not use the option \"%s\"; leave it out",
                                       foreign[n]);
                        return NULL;
                }
        return &allowed[i];
}

static int take_shares(const struct channel *channel, bool is_run, struct err *err) {
        struct share_table *shares = &channel->service->manager->shares;
        const struct share_claim request = channel_claim(channel, 0);
        const struct share_claim run = channel_claim(channel, channel->visitor.use->quota.runs);
        if (share_take(shares, SHARE_REQUESTS, &request, err) < 0)
                return -1;
        if (is_run && share_take(shares, SHARE_RUNS, &run, err) < 0) {
                share_give(shares, SHARE_REQUESTS, &request);
                return -1;
        }
        return 0;
}

static int channel_admit(void *context, json_t *json, bool *ret_is_run, struct err *err) {
        struct channel *channel = context;
        const char *session = json_string_value(json_object_get(json, "session"));
        channel->service->counted.requests++;
        if (!gate_knows_key(channel->service, channel->visitor.owner, channel->digest))
                return err_set(err, ERR_REFUSED,
                               "the key of this connection was removed; connect again with another key");
        if (check_rate(channel, err) < 0)
                return -1;
        const struct allowed_operation *operation = find_allowed(json, err);
        if (!operation)
                return -1;
        bool is_named = session && !json_is_true(json_object_get(json, "ephemeral"));
        if (operation->makes_sandbox && is_named &&
            !sandbox_owner_has_room(channel->service, &channel->visitor, session, err))
                return -1;
        if (operation->is_run && check_timeout(channel, json, err) < 0)
                return -1;
        if (take_shares(channel, operation->is_run, err) < 0)
                return -1;
        *ret_is_run = operation->is_run;
        channel->service->counted.runs += operation->is_run;
        return 0;
}

static void on_settled(void *context, bool is_run) {
        const struct channel *channel = context;
        struct share_table *shares = &channel->service->manager->shares;
        const struct share_claim claim = channel_claim(channel, 0);
        share_give(shares, SHARE_REQUESTS, &claim);
        if (is_run)
                share_give(shares, SHARE_RUNS, &claim);
}

static void api_channel_on_gone(void *context) {
        struct channel *channel = context;
        const struct share_claim claim = channel_claim(channel, 0);
        share_give(&channel->service->manager->shares, SHARE_REQUESTS, &claim);
        free(channel);
}

static const struct client_guard guard = { .admit = channel_admit, .settled = on_settled, .gone = api_channel_on_gone };

/* ---- the connection ---- */

/* A peer whose host disappeared sends nothing: TCP keepalive detects it. */
static void watch_peer(int fd) {
        static const struct {
                int level, name, value;
        } options[] = { { SOL_SOCKET, SO_KEEPALIVE, 1 },    { IPPROTO_TCP, TCP_KEEPIDLE, 30 },
                        { IPPROTO_TCP, TCP_KEEPINTVL, 10 }, { IPPROTO_TCP, TCP_KEEPCNT, 3 },
                        { IPPROTO_TCP, TCP_NODELAY, 1 },    { IPPROTO_TCP, TCP_USER_TIMEOUT, 60000 } };
        for (size_t i = 0; i < ELEMENTS(options); i++) /* a UNIX socket has only the first of these */
                (void) setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

static struct channel *make_channel(struct api_request *api_request, struct err *err) {
        struct service *service = api_request->service;
        const struct share_claim claim = { .key = api_request->visitor.owner, .amount = 1 };
        struct channel *channel = NULL;
        if (service->daemon->n_channels >= DAEMON_CHANNELS_MAX)
                (void) err_set(err, ERR_LIMIT, "there are %d channels already; try again in a moment",
                               DAEMON_CHANNELS_MAX);
        else if (share_take(&service->manager->shares, SHARE_REQUESTS, &claim, err) == 0 &&
                 !(channel = calloc(1, sizeof(*channel)))) {
                share_give(&service->manager->shares, SHARE_REQUESTS, &claim);
                (void) err_set(err, ERR_SYSTEM, ERR_DAEMON_MEMORY);
        }
        if (!channel)
                return NULL;
        channel->service = service;
        channel->visitor = api_request->visitor;
        gate_copy_digest(service, channel->visitor.owner, channel->digest);
        return channel;
}

void channel_open(struct api_request *api_request) {
        struct service *service = api_request->service;
        struct err err = { 0 };
        if (!api_request->visitor.use) {
                api_request_problem(api_request, 403, "refused", "a channel is opened with a key",
                                    "the operator has the daemon's own socket");
                return;
        }
        struct channel *channel = make_channel(api_request, &err);
        if (!channel) {
                api_request_refuse(api_request, &err);
                return;
        }
        char from[64];
        (void) snprintf(from, sizeof(from), "%s", http_peer(api_request->request)->address);
        int fd = http_take_socket(api_request->request, CHANNEL_PROTOCOL);
        if (fd < 0) {
                api_channel_on_gone(channel);
                api_request_problem(api_request, fd == -EPROTO ? 426 : 503, "upgrade_required",
                                    "this is for connections that change their protocol",
                                    "send \"Connection: Upgrade\" and \"Upgrade: " CHANNEL_PROTOCOL "\"");
                return;
        }
        api_request->request = NULL;
        const struct client_holder holder = { channel->visitor.owner, from, &guard, channel };
        watch_peer(fd);
        if (client_accept(service->daemon, fd, &holder, &err) < 0) {
                daemon_log("%s", err.message);
                api_channel_on_gone(channel);
        }
        caller_done(&api_request->caller, "ok");
        api_request_free(api_request);
}
