/* PID 1 of the test machine. Loads the disk's drivers, mounts the disk as the root, a pure cgroup2 tree and the usual
 * file systems, runs tests/vm/inside.sh, and switches the machine off. Static, libc only; every failure is printed to
 * the console and ends the machine, so that the host sees a machine that stopped without a result.
 *
 * "off" is a reset: QEMU is started with -no-reboot, and a reset needs no ACPI that works. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void machine_off(void) {
        sync();
        reboot(RB_AUTOBOOT);
        for (;;)
                pause();
}

static void die(const char *what) {
        printf("vm: %s: %s\n", what, strerror(errno));
        fflush(stdout);
        machine_off();
}

static void mount_one(const char *kind, const char *source, const char *target, unsigned long flags, const char *data) {
        if (mkdir(target, 0755) < 0 && errno != EEXIST && errno != EROFS)
                die(target);
        if (mount(source, target, kind, flags, data) < 0)
                die(target);
}

/* /modules/order lists the drivers, each after those it needs. One that is there already is fine. */
static void load_modules(void) {
        char name[256];
        FILE *order = fopen("/modules/order", "re");
        if (!order)
                die("/modules/order");
        while (fgets(name, sizeof(name), order)) {
                char path[300];
                name[strcspn(name, "\n")] = '\0';
                snprintf(path, sizeof(path), "/modules/%s", name);
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
                        die(path);
                close(fd);
        }
        fclose(order);
}

static void wait_for_disk(const char *path) {
        const struct timespec pause_time = { .tv_nsec = 20 * 1000 * 1000 };
        for (int i = 0; i < 1500 && access(path, F_OK) < 0; i++)
                nanosleep(&pause_time, NULL);
}

static void enter_root(void) {
        mount_one("devtmpfs", "dev", "/dev", MS_NOSUID, "mode=0755");
        wait_for_disk("/dev/vda");
        mount_one("ext4", "/dev/vda", "/root", 0, "prjquota");
        if (mount("/dev", "/root/dev", NULL, MS_MOVE, NULL) < 0)
                die("moving /dev");
        if (chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
                die("entering the disk");
        mount_one("proc", "proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
        mount_one("sysfs", "sys", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
        mount_one("cgroup2", "cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
        mount_one("tmpfs", "run", "/run", MS_NOSUID | MS_NODEV, "mode=0755");
        mount_one("tmpfs", "shm", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
        mount_one("devpts", "devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
}

static void run_inside(void) {
        pid_t pid = fork();
        if (pid < 0)
                die("fork");
        if (pid == 0) {
                char *argv[] = { "bash", "/repo/tests/vm/inside.sh", NULL };
                char *environment[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", NULL };
                setsid();
                execve("/bin/bash", argv, environment);
                die("/bin/bash");
        }
        /* Orphans of the tests end up here: reap whatever comes until the script itself is gone. */
        for (;;) {
                int status = 0;
                pid_t gone = wait(&status);
                if (gone == pid) {
                        printf("vm: the script ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
                        break;
                }
                if (gone < 0 && errno != EINTR)
                        die("wait");
        }
}

int main(void) {
        setvbuf(stdout, NULL, _IOLBF, 0);
        printf("vm: up\n"); /* what the host waits for before it believes in the boot */
        mount_one("proc", "proc", "/proc", 0, NULL);
        load_modules();
        enter_root();
        run_inside();
        fflush(stdout);
        sync();
        if (mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
                printf("vm: the disk stayed writable: %s\n", strerror(errno));
        machine_off();
}
