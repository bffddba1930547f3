/* Preloaded into a program: the time of day jumps by as many seconds as the file $GLOVEBOX_TEST_CLOCK says, whenever it
 * says something else. Clocks that only go forward are left alone, as a real jump leaves them. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t jump_s(void) {
        static const volatile int64_t *shared;
        const char *path = shared ? NULL : getenv("GLOVEBOX_TEST_CLOCK");
        if (path) {
                int fd = open(path, O_RDONLY | O_CLOEXEC);
                void *mapped = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*shared), PROT_READ, MAP_SHARED, fd, 0);
                if (fd >= 0)
                        (void) close(fd);
                if (mapped != MAP_FAILED)
                        shared = mapped;
        }
        return shared ? *shared : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *ret_time) {
        if (syscall(SYS_clock_gettime, clock, ret_time) < 0)
                return -1;
        if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
                ret_time->tv_sec += jump_s();
        return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *ret_time) {
        struct timespec now;
        (void) clock_gettime(CLOCK_REALTIME, &now);
        if (ret_time)
                *ret_time = now.tv_sec;
        return now.tv_sec;
}
