/* A nursery imports untrusted code of an image, and holds one capability that it needs to put kernels into boxes. It is
 * confined by a user namespace that owns nothing but boxes, a view of the image like a box's, no network, and the
 * system-call filter of a box, but for setns, clone3 and the last calls of a kernel's sealing (seccomp_build.c). */
#include "box/seal/nursery_stage.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/seal/environment.h"
#include "box/seal/nursery_message.h"
#include "box/seal/seccomp.h"
#include "box/seal/tree.h"

enum { REPORT_FD = 6 };

#define KERNEL_TREE "/opt/glovebox/kernel"

/* Leaves CAP_SYS_ADMIN, as an ambient capability: the nursery's uid is not 0, and exec would take the rest anyway. */
static int keep_one_capability(void) {
        const uint32_t kept = 1u << CAP_SYS_ADMIN;
        for (unsigned long cap = 0; cap <= 63; cap++)
                if (cap != CAP_SYS_ADMIN && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) > 0 &&
                    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
                        return -errno;
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = { { kept, kept, kept } };
        if (syscall(SYS_capset, &header, sets) < 0 ||
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0) < 0)
                return -errno;
        return 0;
}

/* 0, 1, 2 are /dev/null of the view; 3 orders; 4 answers; 5 the library; 6 the way to report a failure, closed by the
 * exec. */
static int nursery_stage_arrange_descriptors(const struct nursery_stage *nursery) {
        const int wanted[] = { nursery->socket_fd, nursery->answer_fd, nursery->library_fd, nursery->fds->sync_fd };
        int moved[ELEMENTS(wanted)];
        for (size_t i = 0; i < ELEMENTS(wanted); i++) {
                moved[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, REPORT_FD + 1);
                if (moved[i] < 0)
                        return -errno;
        }
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3; i++)
                if (null_fd < 0 || dup2(null_fd, i) < 0)
                        return -errno;
        if (dup2(moved[0], NURSERY_SOCKET_FD) < 0 || dup2(moved[1], NURSERY_ANSWER_FD) < 0 ||
            dup2(moved[2], NURSERY_LIBRARY_FD) < 0 || dup3(moved[3], REPORT_FD, O_CLOEXEC) < 0)
                return -errno;
        return syscall(SYS_close_range, REPORT_FD + 1, ~0u, 0) < 0 ? -errno : 0;
}

/* The limits of kernels whose request has no others, so that they need not change them. A full nursery imports
 * libraries that would start as many threads as they may, and a process with threads cannot be forked: it has one
 * thread in every pool, and two variables more, which it removes after its imports (glovebox_kernel/nursery.py). */
static char **make_usual_environment(const struct nursery_stage *nursery) {
        enum { VARIABLES_MAX = 8 };
        static char no_thread[] = "MALLOC_CONF=background_thread:false",
                    no_arrow_thread[] = "JE_ARROW_MALLOC_CONF=background_thread:false";
        const struct image *image = nursery->spec->image;
        const char *own = environment_image_value(image, "PYTHONPATH=");
        _cleanup_free_ char *words = strdup(nursery->preload);
        char path[IMAGE_ENV_MAX + 512], *rest = words, *word, *extra[VARIABLES_MAX + 4] = { 0 };
        struct limits limits = nursery->spec->limits;
        struct err err = { 0 };
        size_t n = 0;
        while (n < VARIABLES_MAX && (word = strsep(&rest, ",")))
                if (strchr(word, '='))
                        extra[n++] = word;
        (void) snprintf(path, sizeof(path), "PYTHONPATH=" KERNEL_TREE "%s%s%s",
                        image->has_layer ? ":" IMAGE_LAYER_PATH : "", own && *own ? ":" : "", own ? own : "");
        extra[n++] = path;
        if (!nursery->light) {
                extra[n++] = no_thread;
                extra[n++] = no_arrow_thread;
                limits.cpu_thousandths = 1000;
        }
        return environment_make(image, &limits, false, extra, &err);
}

static int nursery_stage_execute(const struct nursery_stage *nursery) {
        const char *const argv[] = { nursery->spec->image->python,    "-m", "glovebox_kernel.nursery", nursery->preload,
                                     nursery->light ? "light" : NULL, NULL };
        char **usual = make_usual_environment(nursery);
        if (!usual)
                return -ENOMEM;
        (void) execve(argv[0], (char *const *) (uintptr_t) argv, usual);
        int code = -errno;
        environment_free(usual);
        return code;
}

static int nursery_stage_make_root(struct nursery_stage *nursery, struct err *err) {
        struct box_spec spec = *nursery->spec;
        _cleanup_fd_ int workspace_fd = tree_make_tmpfs(1 << 20, 16, BOX_UID, BOX_GID, 0755);
        if (workspace_fd < 0)
                return err_sys(err, -workspace_fd, "making an empty workspace");
        spec.workspace_fd = workspace_fd;
        struct stage stage = { .spec = &spec, .fds = nursery->fds, .root_fd = -1, .self_fd = -1 };
        int (*const steps[])(struct stage *, struct err *) = { rootfs_root,     rootfs_image, rootfs_etc,
                                                               rootfs_devices,  rootfs_proc,  rootfs_masks,
                                                               rootfs_writable, rootfs_code,  rootfs_close };
        for (size_t i = 0; i < ELEMENTS(steps); i++)
                if (steps[i](&stage, err) < 0)
                        return -1;
        return 0;
}

void nursery_stage_run(struct nursery_stage *nursery) {
        struct err err = { 0 };
        (void) setsid();
        (void) umask(022);
        int code = 0, report_fd = nursery->fds->sync_fd;
        if (nursery_stage_make_root(nursery, &err) == 0) {
                (void) setrlimit(RLIMIT_CORE, &(struct rlimit) { 1, 1 }); /* not 0: see privilege.c */
                code = nursery_stage_arrange_descriptors(nursery);
                if (code == 0) {
                        report_fd = REPORT_FD;
                        code = keep_one_capability();
                }
                if (code == 0)
                        code = seccomp_install_nursery();
                if (code == 0)
                        code = nursery_stage_execute(nursery);
                (void) err_sys(&err, -code, "starting %s", nursery->spec->image->python);
        }
        (void) err_prefix(&err, "nursery");
        (void) fd_write_all(report_fd, &err, sizeof(err));
        _exit(125);
}
