/* See instance.h. A container starts our program as its first process: an image needs no init, and nothing of it runs
 * before. The container may mount (security.nesting) and divide its control groups, since the boxes in it need both. A
 * virtual machine boots its image; the incus-agent of the image receives our files and starts our program. */
#include "engine/instance_incus.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/loop.h"
#include "base/memory.h"
#include "engine/incus_call.h"

enum {
        BOOT_MS = 240000, /* of a virtual machine, until its agent answers */
        BOOT_PAUSE_MS = 1000,
        BUSY_PAUSE_MS = 250,
        PUSH_MS = 120000,
};

#define KERNEL_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* ---- configuration ---- */

static const char *kernel_name(const struct instance_files *files) {
        const char *slash = strrchr(files->kernel_dir, '/');
        return slash ? slash + 1 : files->kernel_dir;
}

static void config_set_number(json_t *config, const char *key, uint64_t value, const char *unit) {
        char text[64];
        (void) snprintf(text, sizeof(text), "%" PRIu64 "%s", value, unit);
        (void) json_object_set_new(config, key, json_string(text));
}

static json_t *instance_config(const struct instance_order *order, const struct instance_files *files, bool is_vm) {
        char raw[1024];
        uint64_t cpus = order->limits.cpu_thousandths;
        json_t *config = json_pack("{s:s, s:s, s:s, s:s}", INCUS_OWNER_KEY, order->owner, INSTANCE_INCUS_KEY,
                                   *order->marker ? "session" : "run", "boot.autostart", "false", "security.guestapi",
                                   is_vm ? "true" : "false");
        config_set_number(config, "limits.memory",
                          order->limits.memory_bytes + (is_vm ? INSTANCE_VM_OVERHEAD_BYTES : INSTANCE_OVERHEAD_BYTES),
                          "B");
        if (is_vm) {
                config_set_number(config, "limits.cpu", limits_processors(&order->limits), "");
                (void) json_object_set_new(config, "security.secureboot", json_string("false"));
                return config;
        }
        config_set_number(config, "limits.processes", order->limits.pids + INSTANCE_PROCESSES, "");
        config_set_number(config, "limits.cpu.allowance", cpus / 10 + 20,
                          "ms/100ms"); /* 0.2 processors for the Glovebox in it */
        (void) snprintf(raw, sizeof(raw),
                        "lxc.init.cmd = " INSTANCE_PROGRAM
                        " serve --engine native --pool 0 --box-pool 0 --socket " INSTANCE_SOCKET "\n"
                        "lxc.environment = GLOVEBOX_DATA_DIR=" INSTANCE_DATA "\n"
                        "lxc.environment = GLOVEBOX_KERNEL_DIR=" INSTANCE_RUNTIME "/%s\n"
                        "lxc.environment = HOME=/root\n"
                        "lxc.environment = PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
                        "lxc.mount.auto = cgroup:rw:force\n",
                        kernel_name(files));
        static const char *const rows[][2] = { { "limits.memory.swap", "false" },
                                               { "security.privileged", "false" },
                                               { "security.nesting", "true" },
                                               { "security.idmap.isolated", "true" } };
        for (size_t i = 0; i < ELEMENTS(rows); i++)
                (void) json_object_set_new(config, rows[i][0], json_string(rows[i][1]));
        (void) json_object_set_new(config, "raw.lxc", json_string(raw));
        return config;
}

/* The copied program runs on one kind of processor only. */
static int check_server_processor(const struct engine_settings *settings, bool is_vm, struct err *err) {
        struct utsname here;
        json_t *json;
        if (incus_server_info(settings, is_vm, &json, err) < 0)
                return -1;
        char there[64];
        (void) snprintf(there, sizeof(there), "%s", incus_text(json, "environment", "kernel_architecture"));
        json_decref(json);
        if (uname(&here) < 0 || strcmp(there, here.machine) == 0)
                return 0;
        return err_set(err, ERR_UNSUPPORTED,
                       "the incus server %s has processors of another kind (%s) than this host (%s), for which this "
                       "program was built: use a server of the same kind, or a Glovebox there (engine remote)",
                       incus_remote(settings), there, here.machine);
}

static int instance_push_files(const struct engine_settings *settings, const struct instance_order *order,
                               const struct instance_files *files, struct err *err) {
        char program[INCUS_NAME_ROOM + 64], runtime[INCUS_NAME_ROOM + 64];
        struct program_answer answer;
        const char *name = kernel_name(files);
        if (!*name || strspn(name, KERNEL_LETTERS) != strlen(name))
                return err_set(err, ERR_UNSUPPORTED,
                               "the directory of the kernel's files, %.300s, has a name with other characters than "
                               "letters, digits and \"._-\": rename it",
                               files->kernel_dir);
        if (access(files->program, R_OK) < 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "the program of this daemon, %.300s, was replaced or removed since it started, so it "
                               "cannot be copied into an instance: restart the daemon (sessions stay)",
                               files->program);
        (void) snprintf(program, sizeof(program), "%s:%s" INSTANCE_PROGRAM, incus_remote(settings), order->name);
        (void) snprintf(runtime, sizeof(runtime), "%s:%s" INSTANCE_RUNTIME "/", incus_remote(settings), order->name);
        const char *first[] = { "incus", "file",   "push", "--quiet", "--create-dirs", "--uid", "0", "--gid",
                                "0",     "--mode", "0755", "--",      files->program,  program, NULL };
        const char *second[] = { "incus",           "file",  "push", "--quiet", "--recursive", "--",
                                 files->kernel_dir, runtime, NULL };
        if (incus_call(settings, "copying the program into an instance", first, NULL, PUSH_MS, &answer, err) < 0)
                return -1;
        program_answer_release(&answer);
        if (incus_call(settings, "copying the kernel's files into an instance", second, NULL, PUSH_MS, &answer, err) <
            0)
                return -1;
        program_answer_release(&answer);
        return 0;
}

/* ---- containers on other hosts ---- */

/* The server refuses to remove an instance that it is still making, so this retries. */
static int instance_remove_unfinished(const struct engine_settings *settings, const char *name, struct err *err) {
        uint64_t deadline_ms = loop_now_ms() + INCUS_CREATE_MS;
        while (incus_remove(settings, name, err) < 0) {
                if (loop_now_ms() >= deadline_ms)
                        return -1;
                (void) poll(NULL, 0, BUSY_PAUSE_MS);
        }
        return 0;
}

static int instance_create(const struct engine_settings *settings, const struct instance_order *order,
                           const struct instance_files *files, bool is_vm, struct err *err) {
        char pool[128];
        if (check_server_processor(settings, is_vm, err) < 0 || incus_find_pool(settings, pool, sizeof(pool), err) < 0)
                return -1;
        json_t *described = json_pack("{s:o, s:{s:{s:s, s:s, s:s}}}", "config", instance_config(order, files, is_vm),
                                      "devices", "root", "type", "disk", "path", "/", "pool", pool);
        int code = incus_init(settings, order->name, order->image, is_vm, json_incref(described), err);
        if (code < 0 && err->code == ERR_EXISTS) { /* a helper that died left it unfinished */
                code = instance_remove_unfinished(settings, order->name, err);
                if (code == 0)
                        code = incus_init(settings, order->name, order->image, is_vm, json_incref(described), err);
        }
        json_decref(described);
        return code;
}

static void instance_remove(const struct engine_settings *settings, const struct instance_order *order) {
        struct err ignored;
        (void) incus_remove(settings, order->name, &ignored);
}

static int instance_container_make(const struct engine_settings *settings, const struct instance_order *order,
                                   const struct instance_files *files, struct err *err) {
        if (instance_create(settings, order, files, false, err) < 0)
                return -1;
        if (instance_push_files(settings, order, files, err) == 0 && incus_start(settings, order->name, err) == 0)
                return 0;
        instance_remove(settings, order);
        return -1;
}

/* ---- containers and virtual machines ---- */

static int instance_start_if_stopped(const struct engine_settings *settings, const struct instance_order *order,
                                     struct err *err) {
        json_t *json;
        if (incus_query_instance(settings, "querying an instance", "GET", order->name, "", NULL, &json, err) < 0)
                return -1;
        const char *status = json_string_value(json_object_get(json, "status"));
        bool runs = status && strcmp(status, "Running") == 0, has_ended = status && strcmp(status, "Stopped") == 0;
        int code = runs        ? 0
                   : has_ended ? incus_start(settings, order->name, err)
                               : err_set(err, ERR_GONE, "the instance %s is in the state \"%.40s\"", order->name,
                                         status ? status : "");
        if (code < 0 && has_ended && strstr(err->message, "already running"))
                code = 0; /* now and then Incus reports a running instance as stopped for a moment */
        json_decref(json);
        return code;
}

static void instance_exec_command(struct instance_command *command, const struct engine_settings *settings,
                                  const struct instance_order *order, const char *const *arguments,
                                  size_t n_arguments) {
        static const char *const head[] = { "incus", "exec", "--force-noninteractive" };
        size_t n = 0;
        (void) snprintf(command->place, sizeof(command->place), "%s:%s", incus_remote(settings), order->name);
        for (size_t i = 0; i < ELEMENTS(head); i++)
                command->argv[n++] = head[i];
        command->argv[n++] = command->place;
        command->argv[n++] = "--";
        for (size_t i = 0; i < n_arguments && n + 1 < INSTANCE_ARGUMENTS_MAX; i++)
                command->argv[n++] = arguments[i];
        command->argv[n] = NULL;
}

static void instance_container_channel(const struct engine_settings *settings, const struct instance_order *order,
                                       const struct instance_files *files, struct instance_command *ret_command) {
        static const char *const arguments[] = { INSTANCE_PROGRAM, "stdio-channel", INSTANCE_SOCKET };
        (void) files;
        instance_exec_command(ret_command, settings, order, arguments, ELEMENTS(arguments));
}

int instance_incus_list(const struct engine_settings *settings, const char *owner,
                        void (*each)(const char *name, void *context), void *context, struct err *err) {
        json_t *json, *item;
        size_t i;
        if (incus_list_instances(settings, &json, err) < 0)
                return -1;
        json_array_foreach (json, i, item) {
                const char *name = json_string_value(json_object_get(item, "name"));
                if (name && strlen(name) < INSTANCE_NAME_MAX && *incus_text(item, "config", INSTANCE_INCUS_KEY) &&
                    strcmp(incus_text(item, "config", INCUS_OWNER_KEY), owner) == 0)
                        each(name, context);
        }
        json_decref(json);
        return 0;
}

/* ---- virtual machines ---- */

/* Waits until the image has booted and the incus-agent in it answers. */
static int instance_await_agent(const struct engine_settings *settings, const struct instance_order *order,
                                struct err *err) {
        static const char *const arguments[] = { "true" };
        uint64_t deadline_ms = loop_now_ms() + BOOT_MS;
        struct instance_command command;
        struct program_answer answer;
        instance_exec_command(&command, settings, order, arguments, ELEMENTS(arguments));
        while (incus_call(settings, "waiting for a virtual machine", command.argv, NULL, INCUS_SHORT_MS, &answer, err) <
               0) {
                if (loop_now_ms() >= deadline_ms)
                        return err_prefix(err, "the virtual machine was started, and the agent of Incus in it does not "
                                               "answer: does its image have the incus-agent?");
                (void) poll(NULL, 0, BOOT_PAUSE_MS);
        }
        program_answer_release(&answer);
        return 0;
}

static int instance_vm_make(const struct engine_settings *settings, const struct instance_order *order,
                            const struct instance_files *files, struct err *err) {
        if (instance_create(settings, order, files, true, err) < 0)
                return -1;
        if (incus_start(settings, order->name, err) == 0 && instance_await_agent(settings, order, err) == 0 &&
            instance_push_files(settings, order, files, err) == 0)
                return 0;
        instance_remove(settings, order);
        return -1;
}

static int instance_vm_revive(const struct engine_settings *settings, const struct instance_order *order,
                              struct err *err) {
        return instance_start_if_stopped(settings, order, err) < 0 ? -1 : instance_await_agent(settings, order, err);
}

/* The channel starts the daemon, since nothing starts it when the guest boots. */
static void instance_vm_channel(const struct engine_settings *settings, const struct instance_order *order,
                                const struct instance_files *files, struct instance_command *ret_command) {
        (void) snprintf(ret_command->kernel, sizeof(ret_command->kernel), "GLOVEBOX_KERNEL_DIR=" INSTANCE_RUNTIME "/%s",
                        kernel_name(files));
        const char *const arguments[] = { "env",
                                          "HOME=/root",
                                          "GLOVEBOX_DATA_DIR=" INSTANCE_DATA,
                                          ret_command->kernel,
                                          INSTANCE_PROGRAM,
                                          "stdio-channel",
                                          INSTANCE_SOCKET,
                                          "start" };
        instance_exec_command(ret_command, settings, order, arguments, ELEMENTS(arguments));
}

const struct instance_engine instance_incus_container = { .name = "incus",
                                                          .make = instance_container_make,
                                                          .revive = instance_start_if_stopped,
                                                          .channel = instance_container_channel };

const struct instance_engine instance_incus_vm = {
        .name = "incus-vm", .make = instance_vm_make, .revive = instance_vm_revive, .channel = instance_vm_channel
};
