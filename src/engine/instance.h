/* A Glovebox in an instance: a virtual machine, or a container on another host. Descriptors and directories do not
 * cross the border of such an instance, so it gets a Glovebox of its own, which makes the boxes there, and this daemon
 * passes operations on to it (daemon/remote.h). One session, one instance. It is reached by the standard input and
 * output of a program, such as `incus exec`: whatever gives a stream of bytes into an instance can be an engine here.
 *
 * The functions block up to their deadlines: only helper processes call them (instance_link.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "engine/engine.h"

enum {
        INSTANCE_NAME_MAX = 64,
        INSTANCE_ARGUMENTS_MAX = 24,
        INSTANCE_PROCESSES = 100, /* of the Glovebox in it, beside the session's */
};

/* What an instance has beside the memory of its session: the Glovebox in it, and the guest's kernel and services. */
#define INSTANCE_OVERHEAD_BYTES (256 * MIB)
#define INSTANCE_VM_OVERHEAD_BYTES (768 * MIB)

/* Where our files are in it. */
#define INSTANCE_RUNTIME "/opt/glovebox-runtime"
#define INSTANCE_PROGRAM INSTANCE_RUNTIME "/glovebox"
#define INSTANCE_SOCKET "/run/glovebox.sock"
#define INSTANCE_DATA "/var/lib/glovebox"

/* Sent to a helper as it is: no pointers. */
struct instance_order {
        char engine[ENGINE_NAME_MAX];
        char name[INSTANCE_NAME_MAX];
        char owner[16]; /* of all instances of one data directory */
        char image[ENGINE_IMAGE_MAX + 1];
        char marker[1100]; /* a file of the session's that says that its instance was made; "": there is no session */
        struct limits limits;
};

/* What is put into it. */
struct instance_files {
        const char *program, *kernel_dir;
};

/* The words of a command; texts are copied into `room`. */
struct instance_command {
        const char *argv[INSTANCE_ARGUMENTS_MAX];
        char place[256], kernel[400];
};

struct instance_engine {
        const char *name;

        /* Makes it, with our files in it, and starts it. One of this name is removed before. */
        int (*make)(const struct engine_settings *settings, const struct instance_order *order,
                    const struct instance_files *files, struct err *err);

        /* It is to be there: starts it if it has stopped. ERR_NOT_FOUND, ERR_GONE when the server does not answer. */
        int (*revive)(const struct engine_settings *settings, const struct instance_order *order, struct err *err);

        /* The program whose standard input and output are a channel to the Glovebox in it (stdio_channel.h). */
        void (*channel)(const struct engine_settings *settings, const struct instance_order *order,
                        const struct instance_files *files, struct instance_command *ret_command);
};

/* Is a box of this engine in an instance with a Glovebox of its own? Asks nobody (but see incus_is_far). */
bool instance_is_meant(const struct engine_settings *settings, const char *engine);

/* NULL: there is none. */
const struct instance_engine *instance_engine_find(const char *engine);

/* Tells of all instances of this owner. */
int instance_list(const struct engine_settings *settings, const char *owner,
                  void (*each)(const char *name, void *context), void *context, struct err *err);
