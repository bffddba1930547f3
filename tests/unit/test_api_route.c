/* The table of routes and the file of keys. */
#include <sys/stat.h>
#include <unistd.h>

#include "api/key.h"
#include "api/route.h"
#include "scratch.h"
#include "tap.h"

static const struct api_query file_query[] = { { "path", "string", "which file", true }, { NULL, NULL, NULL, false } };

static const struct api_route rows[] = {
        { .method = "GET", .pattern = "/health", .name = "health", .summary = "alive", .is_open = true },
        { .method = "POST",
          .pattern = "/sandbox/{user_id}/create",
          .name = "create",
          .summary = "make one",
          .body_type = "application/json",
          .body_schema = "{\"type\":\"object\"}" },
        { .method = "GET",
          .pattern = "/sandbox/{user_id}/file",
          .name = "read",
          .summary = "read",
          .query = file_query,
          .answer_type = "application/octet-stream" },
        { .method = "DELETE", .pattern = "/sandbox/{user_id}/file", .name = "delete", .summary = "delete" },
        { .method = "GET", .pattern = "/sandbox/{user_id}", .name = "show", .summary = "one" },
        { .method = "GET", .pattern = "/runs/{run}", .name = "run", .summary = "a run" },
};
static const struct api_routes routes = { .rows = rows, .n = sizeof(rows) / sizeof(rows[0]) };

static const char *find(const char *method, const char *path, struct api_match *match, char *allow, struct err *err) {
        return api_route_find(&routes, method, path, match, allow, err) == 0 ? match->route->name
                                                                             : err_code_name(err->code);
}

static void test_find(void) {
        struct api_match match;
        char allow[API_ALLOW_SIZE];
        struct err err;
        is_text(find("GET", "/health", &match, allow, &err), "health", "a plain path");
        is_text(find("HEAD", "/health", &match, allow, &err), "health", "HEAD is GET");
        is_text(find("POST", "/sandbox/a%20%C3%BC/create", &match, allow, &err), "create", "a path with a name in it");
        is_text(api_match_get(&match, "user_id"), "a \xc3\xbc", "which is decoded");
        ok(!api_match_get(&match, "user"), "and has no other name");
        is_text(find("GET", "/runs/x%2Fy", &match, allow, &err), "run", "an encoded slash stays in its segment");
        is_text(api_match_get(&match, "run"), "x/y", "as part of the value");
        is_text(find("POST", "/sandbox/a/file", &match, allow, &err), "unsupported", "a wrong method");
        is_text(allow, "GET, DELETE", "gets the right ones");
        is_text(err.message, "POST is not possible here; this path takes GET, DELETE", "and no other path has it");
        is_text(find("DELETE", "/sandbox/a", &match, allow, &err), "unsupported", "a path that is too short");
        is_text(err.message,
                "DELETE is not possible here; this path takes GET (there is DELETE /sandbox/{user_id}/file)",
                "gets the one that takes the method");
        static const char *const nowhere[] = { "/",        "/healt",    "/healthy",
                                               "/health/", "/sandbox",  "/sandbox/a/b/create",
                                               "/runs",    "/runs/a/b", "/sandbox/a/create/" };
        for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++)
                is_text(find("GET", nowhere[i], &match, allow, &err), "not_found", "%s is not there", nowhere[i]);
        is_text(find("GET", "/runs/", &match, allow, &err), "usage", "an empty name is refused");
        is_text(find("GET", "/runs/%ff", &match, allow, &err), "usage", "so is one that is not UTF-8");
        char path[400] = "/runs/";
        memset(path + 6, 'x', 300);
        is_text(find("GET", path, &match, allow, &err), "usage", "and one that is too long");
}

static void test_describe(void) {
        json_t *description = NULL;
        struct err err;
        ok(api_route_describe(&routes, "Glovebox", "1", &description, &err) == 0, "the table is described");
        const char *name = NULL, *in = NULL, *type = NULL, *summary = NULL;
        int found = json_unpack(description, "{s:{s:{s:{s:[{s:s},{s:s}]}}}}", "paths", "/sandbox/{user_id}/file", "get",
                                "parameters", "name", &name, "in", &in);
        ok(found == 0 && strcmp(name, "user_id") == 0 && strcmp(in, "query") == 0,
           "with the parameters of path and query");
        found = json_unpack(description, "{s:{s:{s:{s:s, s:{s:{s:{s:{s:s}}}}}}}}", "paths", "/sandbox/{user_id}/create",
                            "post", "summary", &summary, "requestBody", "content", "application/json", "schema", "type",
                            &type);
        ok(found == 0 && strcmp(type, "object") == 0, "and the schema of a body");
        json_t *security = NULL;
        found = json_unpack(description, "{s:{s:{s:{s:o}}}}", "paths", "/health", "get", "security", &security);
        ok(found == 0 && json_array_size(security) == 0, "and what needs no key");
        json_decref(description);
        struct api_route bad = rows[1];
        bad.body_schema = "{";
        ok(api_route_describe(&(struct api_routes) { .rows = &bad, .n = 1 }, "", "", &description, &err) < 0,
           "a broken schema is an error");
}

static void test_keys(void) {
        static const char *const bad[] = { "a", "a b", "A 00", "a zz", "a/b 00" };
        static struct api_keys keys;
        struct err err;
        char hex[2 * SHA256_SIZE + 1], text[512];
        (void) snprintf(text, sizeof(text), "# a comment\n\nfirst %s runs=4 rate=60 # why\r\nsecond %s",
                        sha256_hex("0123456789abcdef", 16, hex),
                        "AB000000000000000000000000000000000000000000000000000000000000cd");
        ok(api_keys_parse(&keys, text, &err) == 0 && keys.n == 2, "a file of keys");
        ok(keys.keys[0].runs_max == 4 && keys.keys[0].rate_max == 60 && keys.keys[0].sandboxes_max == 0, "with quotas");
        const struct api_key *found = api_keys_find(&keys, "0123456789abcdef");
        ok(found == &keys.keys[0], "a key is found by its digest");
        ok(!api_keys_find(&keys, "0123456789abcdeF") && !api_keys_find(&keys, ""), "and only by its own");
        struct api_key key;
        ok(api_key_hash("env", "a-key-that-somebody-chose", &key, &err) == 0 && api_keys_add(&keys, &key, &err) == 0,
           "a key in plain is added");
        ok(api_keys_find(&keys, "a-key-that-somebody-chose") == &keys.keys[2], "and found");
        ok(api_key_hash("env", "another-key-of-that-name", &key, &err) == 0 && api_keys_add(&keys, &key, &err) < 0 &&
                   err.code == ERR_EXISTS,
           "a name is there once");
        ok(api_key_hash("short", "short", &key, &err) < 0, "a short key is refused");
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                ok(api_keys_parse(&(struct api_keys) { 0 }, bad[i], &err) < 0, "the line \"%s\" is refused", bad[i]);
        (void) snprintf(text, sizeof(text), "a %s run=4", hex);
        ok(api_keys_parse(&(struct api_keys) { 0 }, text, &err) < 0, "so is a quota that was misspelled");
}

static void test_file(const char *directory) {
        static struct api_keys keys;
        struct err err;
        char path[512], first[API_KEY_SIZE], second[API_KEY_SIZE];
        (void) snprintf(path, sizeof(path), "%s/keys", directory);
        ok(api_keys_load(&keys, path, &err) < 0 && err.code == ERR_NOT_FOUND, "a missing file is said to be missing");
        ok(api_key_make(first, &err) == 0 && api_key_make(second, &err) == 0 && strcmp(first, second) != 0,
           "keys are new");
        ok(api_keys_append(path, "one", first, &err) == 0 && api_keys_append(path, "two", second, &err) == 0,
           "keys are kept");
        ok(api_keys_append(path, "two", first, &err) < 0 && err.code == ERR_EXISTS, "once for each name");
        ok(api_keys_load(&keys, path, &err) == 0 && keys.n == 2, "and read again");
        ok(api_keys_find(&keys, second) == &keys.keys[1], "each is found");
        keys.n = 0;
        ok(chmod(path, 0640) == 0 && api_keys_load(&keys, path, &err) < 0 && err.code == ERR_PERMISSION,
           "a file that others can read is refused");
}

int main(void) {
        char directory[256];
        scratch_make(directory);
        test_find();
        test_describe();
        test_keys();
        test_file(directory);
        scratch_remove(directory);
        return done_testing();
}
