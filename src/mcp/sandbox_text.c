#include "mcp/sandbox_text.h"

#include <string.h>

#include "base/json_writer.h"

enum { HOSTS_SHOWN = 10 };

static void sandbox_put_text(struct json_writer *text, const char *words) {
        json_writer_put(text, words, strlen(words));
}

static void put_network(struct json_writer *text, const json_t *network) {
        const char *word = json_string_value(network);
        const json_t *hosts = json_object_get(network, "allow"), *host;
        size_t i;
        if (word && strcmp(word, "full") == 0)
                sandbox_put_text(text, "The sandbox reaches the internet.");
        else if (json_array_size(hosts) == 0)
                sandbox_put_text(text, "No network.");
        else {
                sandbox_put_text(text, "Of the network only: ");
                json_array_foreach (hosts, i, host) {
                        if (i == HOSTS_SHOWN)
                                break;
                        sandbox_put_text(text, i ? ", " : "");
                        sandbox_put_text(text, json_is_string(host) ? json_string_value(host) : "");
                }
                sandbox_put_text(text, json_array_size(hosts) > HOSTS_SHOWN ? " and more." : ".");
        }
}

char *sandbox_text_describe(const json_t *options) {
        struct json_writer text = { 0 };
        const json_t *mounts = json_object_get(options, "mounts"), *mount;
        size_t i;
        put_network(&text, json_object_get(options, "network"));
        if (json_object_get(options, "workspace"))
                sandbox_put_text(&text, " /workspace is the user's project: changes there are real.");
        json_array_foreach (mounts, i, mount) {
                const char *at = json_string_value(json_object_get(mount, "destination"));
                sandbox_put_text(&text, " The user's files are in ");
                sandbox_put_text(&text, at ? at : "?");
                sandbox_put_text(&text, json_is_true(json_object_get(mount, "writable")) ? "." : ", read-only.");
        }
        if (!json_object_get(options, "workspace") && json_array_size(mounts) == 0)
                sandbox_put_text(&text, " No files of the host.");
        json_writer_put(&text, "", 1);
        if (text.failed)
                json_writer_release(&text);
        return text.bytes;
}
