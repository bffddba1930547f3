#include "session/user_permit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "box/spec.h"
#include "session/session.h"
#include "session/session_config.h"
#include "wire/frame.h"

/* One write to the socket of the agent takes this much: a daemon that is killed leaves no half frame in it. */
enum { PERMIT_BYTES_MAX = 128 << 10, USER_BYTES_MAX = 64 };

static bool is_own_user(const char *user) {
        return strcmp(user, "sandbox") == 0 || strcmp(user, "1000") == 0;
}

int user_permit_check(const struct session *session, json_t *payload, struct err *err) {
        const char *user = json_string_value(json_object_get(payload, "user"));
        if (!user)
                return 0;
        if (is_own_user(user))
                return json_object_del(payload, "user");
        if (!*user || strlen(user) > USER_BYTES_MAX)
                return err_set(err, ERR_USAGE, "\"user\" is a name or number of at most %d characters", USER_BYTES_MAX);
        if (session_config_has_users(&session->row) && !session->is_remote)
                return 0;
        return err_set(
                err, ERR_UNSUPPORTED,
                "this sandbox has one user, \"sandbox\", so nothing can be run as \"%.64s\"; make a sandbox with "
                "the option \"users\" for that",
                user);
}

/* The texts of a JSON array as a list that ends with NULL; the texts are borrowed. NULL: no memory. */
static char **words_of(const json_t *array) {
        size_t n = json_array_size(array);
        char **words = calloc(n + 1, sizeof(*words));
        for (size_t i = 0; words && i < n; i++)
                words[i] = (char *) (uintptr_t) json_string_value(json_array_get(array, i));
        return words;
}

static void free_words(char **words) {
        for (size_t i = 0; words && words[i]; i++)
                free(words[i]);
        free(words);
}

/* "NAME=VALUE" of an object; NULL: no memory. Owned by the caller. */
static char **variables_of(json_t *env) {
        const char *name;
        json_t *value;
        size_t n = 0;
        char **words = calloc(json_object_size(env) + 1, sizeof(*words));
        json_object_foreach (env, name, value) {
                if (!words)
                        break;
                if (asprintf(&words[n], "%s=%s", name, json_string_value(value) ? json_string_value(value) : "") < 0) {
                        words[n] = NULL;
                        free_words(words);
                        return NULL;
                }
                n++;
        }
        return words;
}

int user_permit_send(const struct run *run, struct err *err) {
        const char *user = json_string_value(json_object_get(run->request, "user"));
        const char *cwd = json_string_value(json_object_get(run->request, "cwd"));
        if (!user)
                return 0;
        char **argv = words_of(json_object_get(run->request, "argv"));
        char **envp = variables_of(json_object_get(run->request, "env"));
        struct frame_writer payload = { .failed = !argv || !envp };
        frame_put_text(&payload, run->id);
        frame_put_text(&payload, user);
        frame_put_text(&payload, cwd ? cwd : BOX_WORKSPACE);
        if (argv && envp) {
                frame_put_texts(&payload, argv);
                frame_put_texts(&payload, envp);
        }
        free(argv);
        free_words(envp);
        int code = payload.failed || payload.size > PERMIT_BYTES_MAX
                           ? -E2BIG
                           : frame_send(run->session->kernel->fds[MAKER_CONTROL], FRAME_PERMIT, 0, &payload, NULL, 0);
        frame_writer_release(&payload);
        if (code == -E2BIG)
                return err_set(err, ERR_LIMIT,
                               "a command as another user may have %d KiB of words and variables; pass more "
                               "in a file",
                               PERMIT_BYTES_MAX >> 10);
        return code < 0 ? err_sys(err, -code, "telling the agent what may be run as %.64s", user) : 0;
}
