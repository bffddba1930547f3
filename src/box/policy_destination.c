/* The other half of the mount policy: where in a box a mount may appear. Only the text is checked; the path is resolved
 * inside the box's root when the mount is made. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "box/policy.h"

enum { DESTINATION_MAX = 1024, COMPONENT_MAX = 255 };

static const struct {
        const char *path;
        bool below; /* what lies below it is refused too */
        const char *why;
} reserved[] = {
        { "/proc", true, "the box has its own" },
        { "/sys", true, "a box has none" },
        { "/dev", true, "the box has its own" },
        { "/etc", true, "the box has its own" },
        { "/run", true, "the box has its own" },
        { "/usr", true, "it belongs to the image" },
        { "/bin", true, "it belongs to the image" },
        { "/sbin", true, "it belongs to the image" },
        { "/lib", true, "it belongs to the image" },
        { "/lib32", true, "it belongs to the image" },
        { "/lib64", true, "it belongs to the image" },
        { "/libx32", true, "it belongs to the image" },
        { "/opt/glovebox", true, "Glovebox itself is there" },
        { "/opt", false, "Glovebox itself is below it" },
        { "/var/run", true, "it is /run" },
        { "/tmp", false, "the box has its own; choose a place below it" },
        { "/workspace", false, "name the workspace with --workspace" },
        { "/session", false, "it is /workspace; name the workspace with --workspace" },
        { "/sandbox", false, "it is /workspace; name the workspace with --workspace" },
        { "/work", false, "it is /workspace; name the workspace with --workspace" },
};

/* The reason why the text is no plain absolute path, or NULL if it is one. */
static const char *destination_fault(const char *path) {
        if (path[0] != '/')
                return "it does not begin with /";
        if (strlen(path) > DESTINATION_MAX)
                return "it is too long";
        for (const char *at = path; *at; at++)
                if ((unsigned char) *at < 0x20 || *at == 0x7f)
                        return "it holds a control character";
        const char *at = path;
        while (*at) {
                at++; /* the slash */
                size_t length = strcspn(at, "/");
                if (length == 0)
                        return path[1] ? "it holds an empty name (a double slash, or one at the end)"
                                       : "it is the whole box";
                if (length > COMPONENT_MAX)
                        return "a name in it is longer than 255 bytes";
                if ((length == 1 && at[0] == '.') || (length == 2 && at[0] == '.' && at[1] == '.'))
                        return "it holds . or ..";
                at += length;
        }
        return NULL;
}

const char *policy_show_path(const char *path, char buffer[static POLICY_SHOWN_MAX]) {
        static const char cut[] = "...";
        size_t used = 0;
        while (*path) {
                size_t length = utf8_character_length(path, strlen(path));
                bool good = length > 1 || (length == 1 && (unsigned char) *path >= 0x20 && *path != 0x7f);
                if (length == 0)
                        length = 1;
                if (used + length + sizeof(cut) > POLICY_SHOWN_MAX) {
                        memcpy(buffer + used, cut, sizeof(cut));
                        return buffer;
                }
                memcpy(buffer + used, good ? path : "?", length);
                used += length;
                path += length;
        }
        buffer[used] = '\0';
        return buffer;
}

int policy_check_destination(const char *destination, struct err *err) {
        char shown[POLICY_SHOWN_MAX];
        const char *fault = destination_fault(destination);
        if (fault)
                return err_set(err, ERR_USAGE, "cannot mount at \"%s\" in the box: %s; write for example /data",
                               policy_show_path(destination, shown), fault);
        for (size_t i = 0; i < ELEMENTS(reserved); i++) {
                size_t length = strlen(reserved[i].path);
                if (strncmp(destination, reserved[i].path, length) != 0)
                        continue;
                if (destination[length] == '\0' || (reserved[i].below && destination[length] == '/'))
                        return err_set(err, ERR_REFUSED, "cannot mount at %s in the box: %s is reserved (%s)",
                                       policy_show_path(destination, shown), reserved[i].path, reserved[i].why);
        }
        return 0;
}
