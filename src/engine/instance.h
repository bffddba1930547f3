/* A Glovebox in an instance: a virtual machine, or a container on another host. Descriptors and directories cannot be
 * passed into such an instance. So it has a Glovebox of its own, which makes the boxes there, and this daemon passes
 * operations on to it (daemon/remote.h). Each session has its own instance. The daemon connects to it through the
 * standard input and output of a program such as `incus exec`. An engine only has to offer such a stream of bytes.
 *
 * The functions block up to their deadlines: only helper processes call them (instance_link.h). */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/engine.h"

enum {
        INSTANCE_NAME_MAX = 64,
        INSTANCE_ARGUMENTS_MAX = 24,
        INSTANCE_PROCESSES = 100, /* for the Glovebox in it, in addition to the session's */
};

/* Memory of an instance in addition to its session's: for the Glovebox in it, the guest's kernel and services. */
#define INSTANCE_OVERHEAD_BYTES (256 * MIB)
#define INSTANCE_VM_OVERHEAD_BYTES (768 * MIB)

/* Paths of Glovebox's files in the instance. */
#define INSTANCE_RUNTIME "/opt/glovebox-runtime"
#define INSTANCE_PROGRAM INSTANCE_RUNTIME "/glovebox"
#define INSTANCE_SOCKET "/run/glovebox.sock"
#define INSTANCE_DATA "/var/lib/glovebox"

/* Sent to a helper as bytes, so it holds no pointers. */
struct instance_order {
        char engine[ENGINE_NAME_MAX];
        char name[INSTANCE_NAME_MAX];
        char owner[16]; /* the id of the data directory */
        char image[ENGINE_IMAGE_MAX + 1];
        char marker[1100]; /* a file of the session, written once its instance exists; "": no session */
        struct limits limits;
};

/* Files that are copied into an instance. */
struct instance_files {
        const char *program, *kernel_dir;
};

/* A command. Its arguments may point into the arrays below. */
struct instance_command {
        const char *argv[INSTANCE_ARGUMENTS_MAX];
        char place[256], kernel[400];
};

struct instance_engine {
        const char *name;

        /* Makes the instance, copies the files, and starts it. Removes an existing one of this name first. */
        int (*make)(const struct engine_settings *settings, const struct instance_order *order,
                    const struct instance_files *files, struct err *err);

        /* Starts an existing instance if it has stopped. ERR_NOT_FOUND: there is none. ERR_GONE: the server does not
         * answer. */
        int (*revive)(const struct engine_settings *settings, const struct instance_order *order, struct err *err);

        /* The program whose standard input and output are a channel to the Glovebox in it (stdio_channel.h). */
        void (*channel)(const struct engine_settings *settings, const struct instance_order *order,
                        const struct instance_files *files, struct instance_command *ret_command);
};

/* True if a box of this engine is in an instance with a Glovebox of its own. Sends no request, except in the first call
 * (incus_is_on_other_host). */
bool instance_is_needed(const struct engine_settings *settings, const char *engine);

/* NULL if this engine has no instances. */
const struct instance_engine *instance_engine_find(const char *engine);

/* Calls `each` with every instance of this owner. */
int instance_list(const struct engine_settings *settings, const char *owner,
                  void (*each)(const char *name, void *context), void *context, struct err *err);
