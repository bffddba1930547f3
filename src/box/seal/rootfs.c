/* The file system of a box. It is built in a private mount namespace on a small tmpfs, from trees that the parent
 * opened; every path below is relative to that new root. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/seal/environment.h"
#include "box/seal/mount_point.h"
#include "box/seal/stage.h"
#include "box/seal/tree.h"
#include "box/seal/users.h"

/* Of terminals: the host has 4,096 in all (kernel.pty.max). */
#define BOX_TERMINALS_MAX "32"

enum { ROOT_BYTES = 32 << 20, ROOT_FILES = 4096 };

const struct stage_device stage_devices[STAGE_DEVICES] = {
        { "/dev/null", 1, 3 },   { "/dev/zero", 1, 5 },    { "/dev/full", 1, 7 },
        { "/dev/random", 1, 8 }, { "/dev/urandom", 1, 9 }, { "/dev/tty", 5, 0 },
};

static int make_read_only(int root_fd, const char *path) {
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };
        return sys_mount_setattr(root_fd, path, *path ? 0 : AT_EMPTY_PATH, &attributes) < 0 ? -errno : 0;
}

/* In a box that is made from a template: the working directory is its root, and all places to mount on are directories
 * that the template has made itself. One call by path then does what a walk without following links takes eighteen
 * for. */
static int mount_tmpfs(const char *path, uint64_t bytes, uint64_t files, unsigned mode) {
        char options[160];
        (void) snprintf(options, sizeof(options), "size=%" PRIu64 ",nr_inodes=%" PRIu64 ",mode=%o,uid=%d,gid=%d", bytes,
                        files, mode, BOX_UID, BOX_GID);
        return mount("none", path + strspn(path, "/"), "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 ? -errno : 0;
}

static int attach_tmpfs(const struct stage *stage, const char *path, uint64_t bytes, uint64_t files, unsigned mode) {
        if (stage->spec->from_template)
                return mount_tmpfs(path, bytes, files, mode);
        _cleanup_fd_ int tree = tree_make_tmpfs(bytes, files, BOX_UID, BOX_GID, mode);
        return tree < 0 ? tree : mount_point_attach(stage->root_fd, tree, path, true);
}

static int attach_root(struct stage *stage, int tree_fd, const char *place, struct err *err) {
        if (tree_fd < 0)
                return err_sys(err, -tree_fd, "making the root of the box");
        if (sys_move_mount(tree_fd, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return err_sys(err, errno, "attaching the root of the box");
        stage->root_fd = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return stage->root_fd < 0 ? err_sys(err, errno, "opening the root of the box") : 0;
}

int rootfs_root_at(struct stage *stage, const char *place, struct err *err) {
        /* Of a box with users: theirs, with what they keep outside of the workspace. */
        const struct box_spec *spec = stage->spec;
        _cleanup_fd_ int tree = spec->users ? tree_make_tmpfs(ROOT_BYTES + spec->limits.tmp_bytes, LIMITS_TMP_FILES,
                                                              BOX_ROOT_UID, BOX_ROOT_UID, 0755)
                                            : tree_make_tmpfs(ROOT_BYTES, ROOT_FILES, BOX_UID, BOX_GID, 0755);
        return attach_root(stage, tree, place, err);
}

int rootfs_root(struct stage *stage, struct err *err) {
        static const char place[] = "/tmp"; /* pivot_root wants a mount point: any directory that every host has */
        /* Mounts must not propagate to the host, nor from the host to the box. */
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return err_sys(err, errno, "making the mounts private");
        int code = stage->spec->from_template ? attach_root(stage, stage->fds->template_fd, place, err)
                                              : rootfs_root_at(stage, place, err);
        if (code < 0)
                return -1;
        return fchdir(stage->root_fd) < 0 ? err_sys(err, errno, "entering the root of the box") : 0;
}

/* The files of /etc, without information about the host. An imported image has its own /etc: there we replace only
 * users, groups, host name and hosts. */
static const struct {
        const char *name;
        bool covers; /* the file of an imported image */
        const char *text;
} etc_files[] = {
        { "group", true, "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n" },
        { "hosts", true, "127.0.0.1 localhost sandbox\n::1 localhost\n" },
        { "hostname", true, "sandbox\n" },
        { "resolv.conf", true, "" },
        { "nsswitch.conf", true, "passwd: files\ngroup: files\nhosts: files dns\n" },
        { "machine-id", true, "00000000000000000000000000000000\n" },
        { "shells", false, "/bin/sh\n/bin/bash\n" },
        { "os-release", false, "ID=glovebox\nNAME=Glovebox\nPRETTY_NAME=\"Glovebox sandbox\"\n" },
        { "protocols", false, "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\n" },
        { "services", false, "http 80/tcp\nhttps 443/tcp\ndomain 53/tcp\ndomain 53/udp\nssh 22/tcp\n" },
};

/* Over the image's file. Where it has none, ours is made if its directory was opened (rootfs_image.c), or left out. */
static int cover_etc_file(int root_fd, int ours_fd, const char *name, const char *text) {
        char path[64];
        (void) snprintf(path, sizeof(path), "etc/%s", name);
        _cleanup_fd_ int target =
                sys_openat2(root_fd, path, O_PATH | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        struct stat status;
        if (target < 0 && errno == ENOENT) {
                int code = mount_point_write(root_fd, path, text, strlen(text));
                return code == -EROFS ? 0 : code;
        }
        if (target < 0 || fstat(target, &status) < 0 || !S_ISREG(status.st_mode))
                return 0;
        _cleanup_fd_ int tree = sys_open_tree(ours_fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        return tree < 0 ? -errno : mount_point_put(tree, target);
}

static int rootfs_etc_file(struct stage *stage, int etc_fd, const char *name, const char *text, struct err *err) {
        if (stage->spec->users) { /* in place of the copy of the image's */
                if (users_has_etc_file(name))
                        return 0;
                (void) unlinkat(etc_fd, name, 0);
        }
        int code = mount_point_write_in(etc_fd, name, text, strlen(text));
        if (code == 0 && !stage->spec->image->own_etc && !stage->spec->users)
                code = cover_etc_file(stage->root_fd, etc_fd, name, text);
        return code < 0 ? err_sys(err, -code, "writing /etc/%s", name) : 0;
}

int rootfs_etc(struct stage *stage, struct err *err) {
        if (stage->spec->from_template)
                return 0;
        const struct image *image = stage->spec->image;
        bool own = image->own_etc, is_writable = stage->spec->users;
        _cleanup_fd_ int etc_fd = mount_point_make_directory(stage->root_fd, own || is_writable ? "etc" : "run/etc");
        if (etc_fd < 0)
                return err_sys(err, -etc_fd, "making /etc");
        char passwd[512];
        (void) snprintf(passwd, sizeof(passwd),
                        "root:x:0:0:root:/:/bin/sh\nsandbox:x:%d:%d:sandbox:" BOX_HOME ":%s\n"
                        "nobody:x:65534:65534:nobody:/:/bin/sh\n",
                        BOX_UID, BOX_GID, *image->shell ? image->shell : "/bin/sh");
        if (rootfs_etc_file(stage, etc_fd, "passwd", passwd, err) < 0)
                return -1;
        for (size_t i = 0; i < ELEMENTS(etc_files); i++)
                if ((own || etc_files[i].covers) &&
                    rootfs_etc_file(stage, etc_fd, etc_files[i].name, etc_files[i].text, err) < 0)
                        return -1;
        int code = is_writable ? users_write_etc(etc_fd) : 0;
        return code < 0 ? err_sys(err, -code, "writing the users of the box") : 0;
}

static const struct {
        const char *path, *target;
} device_links[] = {
        { "dev/fd", "/proc/self/fd" },       { "dev/stdin", "/proc/self/fd/0" }, { "dev/stdout", "/proc/self/fd/1" },
        { "dev/stderr", "/proc/self/fd/2" }, { "dev/ptmx", "pts/ptmx" },
};

int rootfs_device_nodes(struct stage *stage, struct err *err) {
        int code = attach_tmpfs(stage, "dev", 64 << 10, 64, 0755);
        if (code < 0)
                return err_sys(err, -code, "making /dev");
        for (size_t i = 0; i < STAGE_DEVICES; i++) {
                code = mount_point_attach(stage->root_fd, stage->fds->device_fds[i], stage_devices[i].path, false);
                if (code < 0)
                        return err_sys(err, -code, "showing %s", stage_devices[i].path);
        }
        for (size_t i = 0; i < ELEMENTS(device_links); i++)
                if (symlinkat(device_links[i].target, stage->root_fd, device_links[i].path) < 0)
                        return err_sys(err, errno, "linking /%s", device_links[i].path);
        if (mkdirat(stage->root_fd, "dev/pts", 0755) < 0 || mkdirat(stage->root_fd, "dev/shm", 0755) < 0 ||
            mkdirat(stage->root_fd, &STAGE_EMPTY[1], 0555) < 0)
                return err_sys(err, errno, "making directories in /dev");
        code = make_read_only(stage->root_fd, "dev");
        return code < 0 ? err_sys(err, -code, "making /dev read-only") : 0;
}

int rootfs_devices(struct stage *stage, struct err *err) {
        if (!stage->spec->from_template && rootfs_device_nodes(stage, err) < 0)
                return -1;
        if (mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
                  "newinstance,ptmxmode=0666,mode=0620,max=" BOX_TERMINALS_MAX) < 0)
                return err_sys(err, errno, "making /dev/pts");
        int code = attach_tmpfs(stage, "dev/shm", LIMITS_SHM_MIB * MIB, 4096, 01777);
        return code < 0 ? err_sys(err, -code, "making /dev/shm") : 0;
}

/* Read-only: a process in the box may read these, and change no setting. */
static const char *const proc_read_only[] = { "proc/sys", "proc/bus", "proc/fs", "proc/irq", "proc/sysrq-trigger" };

/* Covered: they describe the host, or are interfaces to the kernel that a box must not have. */
static const char *const proc_covered[] = {
        "proc/kcore",         "proc/keys",        "proc/key-users",
        "proc/kmsg",          "proc/kallsyms",    "proc/interrupts",
        "proc/softirqs",      "proc/timer_list",  "proc/timer_stats",
        "proc/latency_stats", "proc/sched_debug", "proc/schedstat",
        "proc/kpagecount",    "proc/kpageflags",  "proc/kpagecgroup",
        "proc/config.gz",     "proc/iomem",       "proc/ioports",
        "proc/modules",       "proc/slabinfo",    "proc/vmallocinfo",
        "proc/pagetypeinfo",  "proc/zoneinfo",    "proc/buddyinfo",
        "proc/diskstats",     "proc/partitions",  "proc/swaps",
        "proc/locks",         "proc/cmdline",     "proc/bootconfig",
        "proc/mdstat",        "proc/dma",         "proc/fb",
        "proc/misc",          "proc/devices",     "proc/crypto",
        "proc/execdomains",   "proc/consoles",    "proc/sys/kernel/random/boot_id",
};
static const char *const proc_covered_directories[] = { "proc/acpi",    "proc/asound", "proc/scsi",
                                                        "proc/driver",  "proc/tty",    "proc/dynamic_debug",
                                                        "proc/pressure" };

/* An empty directory. Later steps of the sealing read the host's /proc. */
static int leave_proc_out(struct stage *stage, struct err *err) {
        if (mkdirat(stage->root_fd, "proc", 0555) < 0)
                return err_sys(err, errno, "making /proc");
        stage->self_fd = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
        return stage->self_fd < 0 ? err_sys(err, errno, "opening /proc/self") : 0;
}

int rootfs_proc(struct stage *stage, struct err *err) {
        if (stage->spec->without_proc)
                return leave_proc_out(stage, err);
        if ((!stage->spec->from_template && mkdirat(stage->root_fd, "proc", 0555) < 0) ||
            mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") < 0)
                return err_sys(err, errno,
                               "mounting /proc; inside a container it must not be masked "
                               "(docker run --security-opt systempaths=unconfined), or take boxes without /proc "
                               "(--allow-weaker)");
        return 0;
}

/* Mounts a tree of the box over a path of its /proc. A path that this kernel lacks is skipped.
 *
 * The working directory is the root of the box here. Paths and one call in place of descriptors and five: this is done
 * some forty times for every box, and a /proc without a process yet holds no foreign link. */
static int rootfs_cover(const char *path, const char *with, unsigned long flags) {
        return mount(with, path, NULL, MS_BIND | flags, NULL) == 0 || errno == ENOENT ? 0 : -errno;
}

/* The same directory over itself, read-only with everything below it. */
static int cover_with_itself(const char *path) {
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };
        int code = rootfs_cover(path, path, MS_REC);
        if (code < 0 || sys_mount_setattr(AT_FDCWD, path, AT_RECURSIVE, &attributes) == 0 || errno == ENOENT)
                return code;
        return -errno;
}

/* An empty, read-only directory over a place. Where there is none it is made for the first place and shown at the
 * others: a tmpfs for each would cost as much as all the rest of the step. */
static int cover_with_nothing(const struct stage *stage, const char *path, const char **empty) {
        if (*empty)
                return rootfs_cover(path, *empty, 0);
        if (faccessat(stage->root_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -errno;
        int code = attach_tmpfs(stage, path, 4096, 2, 0555);
        if (code == 0)
                code = make_read_only(stage->root_fd, path);
        *empty = path;
        return code;
}

int rootfs_masks(struct stage *stage, struct err *err) {
        if (stage->spec->without_proc)
                return 0;
        /* In a template's root, which cannot be written to, this place is empty until the next step mounts on it. */
        const char *empty = stage->spec->from_template ? "workspace" : NULL;
        for (size_t i = 0; i < ELEMENTS(proc_read_only); i++) {
                int code = cover_with_itself(proc_read_only[i]);
                if (code < 0)
                        return err_sys(err, -code, "making /%s read-only", proc_read_only[i]);
        }
        for (size_t i = 0; i < ELEMENTS(proc_covered); i++) {
                int code = rootfs_cover(proc_covered[i], "dev/null", 0);
                if (code < 0)
                        return err_sys(err, -code, "covering /%s", proc_covered[i]);
        }
        for (size_t i = 0; i < ELEMENTS(proc_covered_directories); i++) {
                int code = cover_with_nothing(stage, proc_covered_directories[i], &empty);
                if (code < 0)
                        return err_sys(err, -code, "covering /%s", proc_covered_directories[i]);
        }
        return 0;
}

/* Other names for the workspace. */
static const char *const aliases[] = { "session", "sandbox", "work" };

static int link_aliases(int root_fd) {
        for (size_t i = 0; i < ELEMENTS(aliases); i++)
                if (symlinkat("workspace", root_fd, aliases[i]) < 0)
                        return -errno;
        return 0;
}

/* `python` for those who type that, where the image has only a python3. The directory is the last one in PATH. */
static int link_python(const struct stage *stage) {
        if (!*stage->spec->image->python)
                return 0;
        _cleanup_fd_ int bin_fd = mount_point_make_directory(stage->root_fd, &BOX_EXTRA_PROGRAMS[1]);
        if (bin_fd < 0)
                return bin_fd;
        return symlinkat(stage->spec->image->python, bin_fd, "python") < 0 ? -errno : 0;
}

/* The places at which mounts can be added to a ready box (box/late_mounts.h). If an image has something other than a
 * directory there, it stays, and boxes are made with their mounts. */
static void make_late_places(int root_fd) {
        static const char *const places[] = { BOX_DATA_DIR, BOX_CODE_DIR };
        for (size_t i = 0; i < ELEMENTS(places); i++) {
                _cleanup_fd_ int made = mount_point_make_directory(root_fd, places[i]);
                (void) made;
        }
}

int rootfs_places(struct stage *stage, struct err *err) {
        static const char *const places[] = { "proc", "tmp", BOX_HOME, BOX_WORKSPACE };
        int code = link_aliases(stage->root_fd);
        make_late_places(stage->root_fd);
        if (code == 0)
                code = link_python(stage);
        for (size_t i = 0; i < ELEMENTS(places) && code >= 0; i++) {
                _cleanup_fd_ int made = mount_point_make_directory(stage->root_fd, places[i]);
                code = made;
        }
        return code < 0 ? err_sys(err, -code, "making the places of a box") : 0;
}

static int attach_workspace(const struct stage *stage) {
        int tree = stage->spec->workspace_fd;
        if (!stage->spec->from_template)
                return mount_point_attach(stage->root_fd, tree, BOX_WORKSPACE, true);
        return sys_move_mount(tree, "", stage->root_fd, "workspace", MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

/* A project's .sandbox has links to the sockets of its daemon. A box sees an empty directory in its place, so it can
 * neither change the host's links nor create files there. */
static int cover_project_links(int root_fd, const char *shown) {
        char path[4096];
        if (snprintf(path, sizeof(path), "%s/" PROJECT_LINKS, shown + strspn(shown, "/")) >= (int) sizeof(path))
                return -ENAMETOOLONG;
        _cleanup_fd_ int target =
                sys_openat2(root_fd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        if (target < 0)
                return 0;
        _cleanup_fd_ int empty = tree_make_empty(BOX_UID, BOX_GID);
        return empty < 0 ? empty : mount_point_put(empty, target);
}

/* Creates the directory for artifacts. A workspace that cannot be written to is the caller's choice. */
static void make_artifacts(const struct stage *stage) {
        if (stage->spec->users) { /* it is the sandbox's own user's, as in every box */
                (void) setfsgid(BOX_GID);
                (void) setfsuid(BOX_UID);
        }
        (void) mkdirat(stage->root_fd, "workspace/artifacts", 0755);
        if (stage->spec->users) {
                (void) setfsuid(BOX_ROOT_UID);
                (void) setfsgid(BOX_ROOT_UID);
        }
}

int rootfs_writable(struct stage *stage, struct err *err) {
        const struct limits *limits = &stage->spec->limits;
        int code = attach_tmpfs(stage, "tmp", limits->tmp_bytes, LIMITS_TMP_FILES, 01777);
        if (code == 0)
                code = attach_tmpfs(stage, BOX_HOME, limits->tmp_bytes, LIMITS_TMP_FILES, 0700);
        if (code == 0)
                code = attach_workspace(stage);
        if (code == 0)
                code = cover_project_links(stage->root_fd, BOX_WORKSPACE);
        if (code == 0 && !stage->spec->from_template)
                code = link_aliases(stage->root_fd);
        if (code == 0 && !stage->spec->from_template)
                make_late_places(stage->root_fd);
        if (code == 0 && !stage->spec->from_template)
                code = link_python(stage);
        if (code == 0 && stage->spec->users)
                code = users_make_writable(stage);
        if (code < 0)
                return err_sys(err, -code, "making the writable directories");
        make_artifacts(stage);
        return 0;
}

int rootfs_mounts(struct stage *stage, struct err *err) {
        for (size_t i = 0; i < stage->spec->n_mounts; i++) {
                const struct box_mount *mounted = &stage->spec->mounts[i];
                int code = mount_point_attach(stage->root_fd, mounted->tree_fd, mounted->destination,
                                              mounted->is_directory);
                if (code == -EROFS || code == -ENOENT || code == -EACCES)
                        return err_set(err, ERR_USAGE,
                                       "cannot mount at %s: the image has no such place and is read-only; "
                                       "choose a destination that does not exist in the image, such as /mnt/%s",
                                       mounted->destination, strrchr(mounted->destination, '/') + 1);
                if (code == 0 && mounted->is_directory)
                        code = cover_project_links(stage->root_fd, mounted->destination);
                if (code < 0)
                        return err_sys(err, -code, "mounting at %s", mounted->destination);
        }
        return 0;
}

/* Libraries ask here how many processors there are; /sys itself is not shown. */
int rootfs_processors(struct stage *stage, struct err *err) {
        char range[32];
        uint64_t processors = limits_visible_processors(&stage->spec->limits);
        int length = processors == 1 ? snprintf(range, sizeof(range), "0\n")
                                     : snprintf(range, sizeof(range), "0-%d\n", (int) processors - 1);
        int code = mount_point_write(stage->root_fd, "sys/devices/system/cpu/online", range, (size_t) length);
        if (code == 0)
                code = mount_point_write(stage->root_fd, "sys/devices/system/cpu/possible", range, (size_t) length);
        return code < 0 ? err_sys(err, -code, "telling the number of processors") : 0;
}

int rootfs_code(struct stage *stage, struct err *err) {
        const struct box_spec *spec = stage->spec;
        char path[300];
        if (spec->from_template)
                return 0;
        if (rootfs_processors(stage, err) < 0)
                return -1;
        if (!spec->code_name)
                return 0;
        (void) snprintf(path, sizeof(path), BOX_CODE_DIR "/%s", spec->code_name);
        int code = mount_point_write(stage->root_fd, path, spec->code, spec->code_size);
        return code < 0 ? err_sys(err, -code, "placing the code") : 0;
}

int rootfs_close(struct stage *stage, struct err *err) {
        int code = make_read_only(stage->root_fd, "");
        if (code < 0)
                return err_sys(err, -code, "making the root read-only");
        /* "." twice: the new root is put on top, the old one is left below it and detached. */
        if (fchdir(stage->root_fd) < 0 || sys_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
            chdir("/") < 0)
                return err_sys(err, errno, "leaving the host's root");
        fd_close(&stage->root_fd);
        /* Checks that the host's root is detached: "/" must be the root that was built. */
        struct stat here, workspace;
        if (stat("/", &here) < 0 || stat(BOX_WORKSPACE, &workspace) < 0 || here.st_dev == workspace.st_dev)
                return err_set(err, ERR_SYSTEM, "the new root is not the one that was built");
        return 0;
}
