/* Docker and podman do all of this from the container's description. Incus cannot: its containers run an init as root,
 * with /sys, devices and a writable root. Here this program takes the place of that init, in the box's own user
 * namespace. Code in the box cannot undo its mounts, since no capability is left when the agent runs. */
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "box/seal/privilege.h"
#include "box/seal/stage.h"
#include "box/seal/tree.h"

static int make_mounts_private(struct stage *stage, struct err *err) {
        (void) stage;
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? err_sys(err, errno, "making the mounts private")
                                                                     : 0;
}

/* The root is the box's own copy. In the image the file may be a dangling link. */
static int write_names(struct stage *stage, struct err *err) {
        static const struct {
                const char *path, *text;
        } files[] = {
                { "etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n" },
                { "etc/hostname", "sandbox\n" },
                { "etc/resolv.conf", "# no name server: a box with a network has a proxy\n" },
                { "etc/machine-id", "00000000000000000000000000000000\n" },
        };
        (void) mkdirat(stage->root_fd, "etc", 0755);
        for (size_t i = 0; i < ELEMENTS(files); i++) {
                (void) unlinkat(stage->root_fd, files[i].path, 0);
                _cleanup_fd_ int fd = openat(stage->root_fd, files[i].path,
                                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
                int code = fd < 0 ? -errno : fd_write_all(fd, files[i].text, strlen(files[i].text));
                if (code < 0)
                        return err_sys(err, -code, "writing /%s", files[i].path);
        }
        return 0;
}

static int name_and_loopback(struct stage *stage, struct err *err) {
        static const char name[] = "sandbox";
        (void) stage;
        if (sethostname(name, sizeof(name) - 1) < 0 || setdomainname("", 0) < 0)
                return err_sys(err, errno, "naming the box");
        _cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
                return err_sys(err, errno, "bringing up the loopback interface");
        return 0;
}

/* Replaces the engine's /proc if Linux allows it. With files of the engine in it (lxcfs) Linux refuses another one:
 * then it stays, if it shows only the box's processes. */
static int mount_proc(struct stage *stage, struct err *err) {
        (void) stage;
        if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "hidepid=2") < 0 && errno != EPERM)
                return err_sys(err, errno, "mounting /proc");
        return 0;
}

/* Over whatever the engine mounted there. */
static int cover_sys(struct stage *stage, struct err *err) {
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY };
        (void) umount2("sys", MNT_DETACH);
        (void) mkdirat(stage->root_fd, "sys", 0755);
        if (mount("none", "sys", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=64k,nr_inodes=32,mode=755") < 0)
                return err_sys(err, errno, "covering /sys");
        if (rootfs_processors(stage, err) < 0)
                return -1;
        return sys_mount_setattr(AT_FDCWD, "sys", 0, &attributes) < 0 ? err_sys(err, errno, "making /sys read-only")
                                                                      : 0;
}

static int close_root(struct stage *stage, struct err *err) {
        struct mount_attr attributes = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV };
        (void) stage;
        return sys_mount_setattr(AT_FDCWD, "/", 0, &attributes) < 0 ? err_sys(err, errno, "making the root read-only")
                                                                    : 0;
}

/* Closes the engine's console, and every other descriptor except the host's socket, 3. */
static int close_descriptors(struct stage *stage, struct err *err) {
        (void) stage;
        _cleanup_fd_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3; i++)
                if (null_fd < 0 || dup2(null_fd, i) < 0)
                        return err_sys(err, errno, "opening /dev/null");
        return syscall(SYS_close_range, 4, ~0u, 0) < 0 ? err_sys(err, errno, "closing descriptors") : 0;
}

static int offer_to_oom(struct stage *stage, struct err *err) {
        (void) stage;
        int code = privilege_offer_to_oom();
        return code < 0 ? err_sys(err, -code, "being the first to go when memory runs out") : 0;
}

static int open_devices(struct stage_fds *fds, struct err *err) {
        for (size_t i = 0; i < STAGE_DEVICES; i++) {
                const struct stage_device *device = &stage_devices[i];
                fds->device_fds[i] = tree_clone_device(device->path, device->major_number, device->minor_number);
                if (fds->device_fds[i] < 0)
                        return err_sys(err, -fds->device_fds[i], "opening %s", device->path);
        }
        return 0;
}

/* The device nodes that the box keeps are already open. */
static int drop_dev(struct stage *stage, struct err *err) {
        (void) stage;
        (void) err;
        (void) umount2("dev", MNT_DETACH); /* if it cannot be detached, it is covered */
        return 0;
}

static int (*const steps[])(struct stage *, struct err *) = {
        make_mounts_private,
        write_names, /* while the root is writable */
        name_and_loopback, /* needs a capability */
        drop_dev,
        rootfs_devices,
        mount_proc,
        rootfs_masks, /* after /dev, whose null covers files */
        cover_sys,
        offer_to_oom,
        close_root, /* after the last mount point was made */
        close_descriptors, /* opens the box's own /dev/null */
};

int view_seal(const struct limits *limits, struct err *err) {
        const struct box_spec spec = { .limits = *limits };
        struct stage_fds fds;
        (void) umask(022);
        if (chdir("/") < 0 || open_devices(&fds, err) < 0)
                return err->code != ERR_NONE ? -1 : err_sys(err, errno, "entering the root of the box");
        struct stage stage = {
                .spec = &spec, .fds = &fds, .root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), .mount_bound_fd = -1
        };
        for (size_t i = 0; i < ELEMENTS(steps); i++)
                if (steps[i](&stage, err) < 0)
                        return -1;
        return 0;
}

int view_drop_privileges(struct err *err) {
        /* The capabilities outlive the change of ids, so that the bounding set can go after it, and all else. */
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
            setresgid(BOX_GID, BOX_GID, BOX_GID) < 0 || setresuid(BOX_UID, BOX_UID, BOX_UID) < 0)
                return err_sys(err, errno, "becoming the user of the box");
        int code = privilege_join_fresh_keyring();
        if (code < 0)
                return err_sys(err, -code, "joining a fresh keyring");
        code = privilege_drop_all();
        return code < 0 ? err_sys(err, -code, "giving up privileges") : 0;
}
