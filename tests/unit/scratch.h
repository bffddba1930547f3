/* A directory of the test's own, removed at its end. */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void must(int condition, const char *what) {
        if (condition)
                return;
        printf("Bail out! cannot set up the test: ");
        fflush(stdout);
        perror(what);
        exit(EXIT_FAILURE);
}

static inline void scratch_make(char ret_path[static 256]) {
        const char *base = getenv("TMPDIR");
        (void) snprintf(ret_path, 256, "%s/glovebox-test-XXXXXX",
                        base && base[0] == '/' && strlen(base) < 40 ? base : "/tmp");
        must(mkdtemp(ret_path) != NULL, "mkdtemp");
}

static inline int scratch_remove_one(const char *path, const struct stat *status, int kind, struct FTW *ftw) {
        (void) status;
        (void) kind;
        (void) ftw;
        return remove(path);
}

static inline void scratch_remove(const char *path) {
        (void) nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline size_t scratch_read(const char *dir, const char *name, void *bytes, size_t size) {
        char path[512];
        (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, bytes, size);
        must(n >= 0, path);
        if (fd >= 0)
                close(fd);
        return (size_t) n;
}

static inline void scratch_write(const char *dir, const char *name, const void *bytes, size_t size) {
        char path[512];
        (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        must(fd >= 0 && write(fd, bytes, size) == (ssize_t) size, path);
        close(fd);
}

/* -1 when it is not there. */
static inline long scratch_size(const char *dir, const char *name) {
        char path[512];
        (void) snprintf(path, sizeof(path), "%s/%s", dir, name);
        struct stat status;
        return lstat(path, &status) < 0 ? -1 : (long) status.st_size;
}
