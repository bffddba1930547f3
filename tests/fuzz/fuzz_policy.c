/* Mount destinations: what is accepted is a plain absolute path outside of what the box provides; what is refused is
 * refused with a message that a terminal and JSON can hold. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "box/policy.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_accepted(const char *path) {
        static const char *const closed[] = {
                "/proc", "/sys", "/dev", "/etc", "/run", "/usr", "/bin", "/opt/glovebox"
        };
        if (path[0] != '/' || path[1] == '\0' || strstr(path, "//") || strstr(path, "/../") || strstr(path, "/./"))
                abort();
        if (path[strlen(path) - 1] == '/')
                abort();
        for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
                size_t length = strlen(closed[i]);
                if (strncmp(path, closed[i], length) == 0 && (path[length] == '/' || path[length] == '\0'))
                        abort();
        }
}

static void check_message(const char *message) {
        for (const char *at = message; *at; at++)
                if ((unsigned char) *at < 0x20)
                        abort();
        json_t *text = json_string(message); /* NULL for broken UTF-8 */
        if (!text)
                abort();
        json_decref(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
        char *path = text_of(bytes, size);
        struct err err = { 0 };
        if (policy_check_destination(path, &err) == 0)
                check_accepted(path);
        else
                check_message(err.message);
        free(path);
        return 0;
}
