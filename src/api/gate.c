#include "api/gate.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/log.h"
#include "daemon/daemon.h"
#include "http/host.h"

enum { LOOK_MS = 1000 }; /* how soon an added or removed key counts */

/* ---- where it comes from ---- */

static bool is_in_header_list(const char *names, const char *name, size_t size) {
        while (names && *names) {
                size_t n = strcspn(names, ", ");
                if (n == size && strncasecmp(names, name, n) == 0)
                        return true;
                names += n;
                names += strspn(names, ", ");
        }
        return false;
}

/* An attacker can make a name resolve to this host, but not an address. */
static bool is_address(const char *host, size_t size) {
        if (host[0] == '[')
                return true;
        for (size_t i = 0; i < size; i++)
                if (!isdigit((unsigned char) host[i]) && host[i] != '.')
                        return false;
        return true;
}

static bool knows_host(const struct service *service, const char *host) {
        size_t size = http_host_name_size(host);
        return http_host_is_loopback(host) || is_address(host, size) ||
               is_in_header_list(service->settings->names, host, size);
}

/* "https://NAME[:PORT]", with the host of this request. */
static bool is_same_origin(const char *origin, const char *host) {
        static const char *const schemes[] = { "http://", "https://" };
        for (size_t i = 0; i < 2; i++) {
                size_t size = strlen(schemes[i]);
                if (strncasecmp(origin, schemes[i], size) == 0 && strcasecmp(origin + size, host) == 0)
                        return true;
        }
        return false;
}

bool gate_admits_origin(const struct service *service, struct http_request *request) {
        const char *host = http_host(request), *origin = http_header(request, "Origin");
        if (!http_peer(request)->is_unix && (!host || !knows_host(service, host))) {
                http_problem(request, 421, "foreign_host", "the Host header names a server that this is not",
                             "use the server's address, or let its operator add the name (SANDBOX_API_NAMES)");
                return false;
        }
        if (origin && (!host || !is_same_origin(origin, host))) {
                http_problem(request, 403, "foreign_origin", "the request comes from a page of another site",
                             "call the service from a program, or from a page that it serves itself");
                return false;
        }
        return true;
}

/* ---- the key of a request ---- */

int gate_load_keys(struct service *service, struct err *err) {
        static struct api_keys fresh; /* large, and used by one at a time */
        struct stat status;
        fresh.n = 0;
        service->keys_looked_ms = loop_now_ms();
        service->keys_changed_ns = 0;
        if (stat(service->keys_path, &status) == 0) {
                service->keys_changed_ns = (int64_t) status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
                if (api_keys_load(&fresh, service->keys_path, err) < 0)
                        return -1;
        }
        if (*service->settings->key.name && api_keys_add(&fresh, &service->settings->key, err) < 0)
                return -1;
        service->keys = fresh;
        service->manager->shares.n_keys = (unsigned) fresh.n;
        return 0;
}

/* The file may have been changed by `glovebox serve --new-key`, or by hand. One that cannot be read changes nothing. */
static void reload_changed_keys(struct service *service) {
        struct stat status;
        struct err err;
        if (loop_now_ms() - service->keys_looked_ms < LOOK_MS)
                return;
        service->keys_looked_ms = loop_now_ms();
        int64_t changed_ns = stat(service->keys_path, &status) == 0
                                     ? (int64_t) status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec
                                     : 0;
        if (changed_ns != service->keys_changed_ns && gate_load_keys(service, &err) < 0)
                daemon_log("the keys stay as they were: %s", err.message);
}

static struct quota quota_of(const struct service *service, const struct api_key *key) {
        struct quota quota = service->settings->quota;
        if (key->sandboxes_max)
                quota.sandboxes = key->sandboxes_max;
        if (key->runs_max)
                quota.runs = key->runs_max;
        if (key->rate_max)
                quota.rate = key->rate_max;
        return quota;
}

static void refuse_visitor(struct service *service, struct http_request *request, const char *shown) {
        service->counted.unauthorized++;
        (void) http_add_header(request, "WWW-Authenticate", "Bearer");
        const char *detail = shown                                   ? "the key is not known"
                             : http_header(request, "Authorization") ? "the header Authorization has no \"Bearer KEY\""
                                                                     : "a key is needed and none was sent";
        http_problem(request, 401, "unauthorized", detail,
                     "send \"Authorization: Bearer KEY\"; `glovebox serve --new-key NAME` makes a key");
}

bool gate_admits_visitor(struct service *service, struct http_request *request, struct visitor *ret_visitor) {
        const char *shown = api_key_of(request);
        *ret_visitor = (struct visitor) { 0 };
        bool has_both = http_header(request, "Authorization") || http_header(request, "X-API-Key");
        if (!shown && !has_both && http_peer(request)->is_unix)
                return true; /* its owner: the listener has checked that */
        reload_changed_keys(service);
        const struct api_key *key = shown ? api_keys_find(&service->keys, shown) : NULL;
        if (!key) {
                refuse_visitor(service, request, shown);
                return false;
        }
        struct quota quota = quota_of(service, key);
        (void) snprintf(ret_visitor->owner, sizeof(ret_visitor->owner), "%s", key->name);
        ret_visitor->use = quota_find(&service->uses, key->name, &quota);
        unsigned wait_s = ret_visitor->use ? quota_count_request(ret_visitor->use, loop_now_ms()) : 1;
        if (wait_s == 0)
                return true;
        char text[16];
        (void) snprintf(text, sizeof(text), "%u", wait_s);
        (void) http_add_header(request, "Retry-After", text);
        service->counted.turned_away++;
        http_problem(request, 429, "rate_limit", "this key has sent more requests in a minute than it may",
                     "wait as long as Retry-After says");
        return false;
}

static const struct api_key *find_named(const struct service *service, const char *name) {
        for (size_t i = 0; i < service->keys.n; i++)
                if (strcmp(service->keys.keys[i].name, name) == 0)
                        return &service->keys.keys[i];
        return NULL;
}

bool gate_knows_key(struct service *service, const char *name, const uint8_t digest[static SHA256_SIZE]) {
        reload_changed_keys(service);
        const struct api_key *key = find_named(service, name);
        return key && memcmp(key->digest, digest, SHA256_SIZE) == 0;
}

void gate_copy_digest(const struct service *service, const char *name, uint8_t ret_digest[static SHA256_SIZE]) {
        const struct api_key *key = find_named(service, name);
        memset(ret_digest, 0, SHA256_SIZE);
        if (key)
                memcpy(ret_digest, key->digest, SHA256_SIZE);
}
