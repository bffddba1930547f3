#include "box/seal/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

static int seccomp_install_program(const struct sock_fprog *program) {
        /* TSYNC applies the filter to all threads: a filter on one of several threads would protect nothing. It returns
         * the id of a thread that could not be changed. */
        long answer = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program);
        if (answer < 0)
                return -errno;
        return answer == 0 ? 0 : -EBUSY;
}

int seccomp_install(void) {
        return seccomp_install_program(&seccomp_program);
}

int seccomp_install_nursery(void) {
        return seccomp_install_program(&seccomp_nursery_program);
}

int seccomp_close_early(void) {
        return seccomp_install_program(&seccomp_early_closing_program);
}

int seccomp_close(void) {
        return seccomp_install_program(&seccomp_closing_program);
}
