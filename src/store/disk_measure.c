#include "store/disk_measure.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

enum {
        BLOCK = 512,          /* of st_blocks */
        PIECE = 4096,         /* of a directory at a time */
        PIECES_MAX = 256,     /* that are kept, one for each level */
        OPEN_FILES_MAX = 4096, /* of processes, looked at in one go */
};

/* Files that were counted already and may be met again. */
struct inode_set {
        uint64_t *slots; /* 0: free */
        size_t n, room;  /* room is a power of two */
};

struct disk_counters {
        struct disk_amount amount;
        uint64_t max_files;
        struct inode_set seen;
};

struct disk_counters *disk_counters_make(uint64_t max_files) {
        struct disk_counters *counters = calloc(1, sizeof(*counters));
        if (counters)
                counters->max_files = max_files;
        return counters;
}

void disk_counters_free(struct disk_counters *counters) {
        if (counters)
                free(counters->seen.slots);
        free(counters);
}

struct disk_amount disk_counters_amount(const struct disk_counters *counters) {
        return counters->amount;
}

/* ---- files with several names ---- */

static uint64_t *find_slot(const struct inode_set *set, uint64_t inode) {
        size_t at = (size_t) (inode * 0x9e3779b97f4a7c15ull >> 20) & (set->room - 1);
        while (set->slots[at] && set->slots[at] != inode)
                at = (at + 1) & (set->room - 1);
        return &set->slots[at];
}

static bool inode_set_grow(struct inode_set *set) {
        struct inode_set larger = { .n = set->n, .room = set->room ? 2 * set->room : 256 };
        larger.slots = calloc(larger.room, sizeof(*larger.slots));
        if (!larger.slots)
                return false;
        for (size_t i = 0; i < set->room; i++)
                if (set->slots[i])
                        *find_slot(&larger, set->slots[i]) = set->slots[i];
        free(set->slots);
        *set = larger;
        return true;
}

/* True the first time. Without memory it is counted once more: too much rather than too little. */
static bool is_new(struct inode_set *set, uint64_t inode) {
        if (2 * set->n >= set->room && !inode_set_grow(set))
                return true;
        uint64_t *slot = find_slot(set, inode);
        if (*slot)
                return false;
        *slot = inode;
        set->n++;
        return true;
}

/* ---- a tree ---- */

/* As the kernel writes it (getdents64(2)). */
struct entry {
        uint64_t inode;
        int64_t next_offset;
        unsigned short size;
        unsigned char type;
        char name[];
};

/* A directory that is being read: one for each level. */
struct level {
        int fd;
        int64_t offset; /* where to go on reading */
        char *piece;    /* of it, what was read and not looked at; NULL: to be read */
        long at, size;
};

struct walk {
        struct disk_counters *counters;
        dev_t device;
        struct level *levels;
        size_t n_levels, room;
};

static bool disk_measure_enter(struct walk *walk, int fd) {
        if (walk->n_levels == walk->room) {
                size_t room = walk->room ? 2 * walk->room : 32;
                struct level *levels = realloc(walk->levels, room * sizeof(*levels));
                if (!levels)
                        return false;
                walk->levels = levels;
                walk->room = room;
        }
        walk->levels[walk->n_levels++] = (struct level) { .fd = fd };
        return true;
}

static void disk_measure_enter_below(struct walk *walk, int dir_fd, const char *name) {
        int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOATIME);
        if (fd < 0 && errno == EPERM)
                fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0 && disk_measure_enter(walk, fd))
                return;
        /* A directory that was removed or replaced meanwhile holds nothing. One that cannot be read counts as too
         * much. */
        if (fd >= 0 || (errno != ENOENT && errno != ENOTDIR && errno != ELOOP))
                walk->counters->amount.is_cut = true;
        fd_close(&fd);
}

/* Counts one entry; a directory is entered. */
static void disk_measure_count(struct walk *walk, int dir_fd, const char *name) {
        struct disk_amount *amount = &walk->counters->amount;
        struct stat status;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) < 0 || status.st_dev != walk->device)
                return;
        if (++amount->files > walk->counters->max_files) {
                amount->is_cut = true;
                return;
        }
        if (S_ISDIR(status.st_mode) || status.st_nlink <= 1 || is_new(&walk->counters->seen, status.st_ino))
                amount->bytes += (uint64_t) status.st_blocks * BLOCK;
        if (S_ISDIR(status.st_mode))
                disk_measure_enter_below(walk, dir_fd, name);
}

/* The rest of a piece is kept while a directory in it is walked through; deep down it is read again instead. */
static void keep_piece(struct walk *walk, size_t depth, const char *bytes, long at, long size) {
        struct level *level = &walk->levels[depth - 1];
        if (at == size || depth > PIECES_MAX)
                return;
        if (!level->piece && (level->piece = malloc(PIECE)))
                memcpy(level->piece, bytes, (size_t) size);
        if (level->piece) {
                level->at = at;
                level->size = size;
        }
}

/* Looks at a piece of the innermost directory, up to the first directory in it. False when there is no more. */
static bool read_piece(struct walk *walk) {
        _Alignas(struct entry) char fresh[PIECE];
        size_t depth = walk->n_levels;
        struct level *level = &walk->levels[depth - 1];
        int fd = level->fd;
        char *bytes = level->piece ? level->piece : fresh;
        long at = level->piece ? level->at : 0, size = level->size;
        if (!level->piece) {
                size = lseek(fd, level->offset, SEEK_SET) < 0 ? -1 : syscall(SYS_getdents64, fd, fresh, sizeof(fresh));
                if (size <= 0)
                        return false;
        }
        while (at < size && !walk->counters->amount.is_cut && walk->n_levels == depth) {
                const struct entry *entry = (const struct entry *) (bytes + at);
                walk->levels[depth - 1].offset = entry->next_offset;
                at += entry->size;
                disk_measure_count(walk, fd, entry->name);
        }
        keep_piece(walk, depth, bytes, at, size);
        if (at == size && walk->levels[depth - 1].piece)
                free(take_ptr(walk->levels[depth - 1].piece));
        return true;
}

static void walk_leave(struct walk *walk) {
        struct level *level = &walk->levels[--walk->n_levels];
        fd_close(&level->fd);
        free(level->piece);
}

void disk_counters_add_tree(struct disk_counters *counters, int dir_fd) {
        struct walk walk = { .counters = counters };
        struct stat status;
        int top = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (top < 0 || fstat(top, &status) < 0 || !disk_measure_enter(&walk, top)) {
                fd_close(&top);
                return;
        }
        walk.device = status.st_dev;
        while (walk.n_levels > 0)
                if (counters->amount.is_cut || !read_piece(&walk))
                        walk_leave(&walk);
        free(walk.levels);
}

/* ---- files without a name ---- */

static void add_removed_of(struct disk_counters *counters, dev_t device, int pid, size_t *left) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        DIR *directory = opendir(path);
        const struct dirent *entry;
        while (directory && *left > 0 && (entry = readdir(directory))) {
                struct stat status;
                --*left;
                if (fstatat(dirfd(directory), entry->d_name, &status, 0) == 0 && S_ISREG(status.st_mode) &&
                    status.st_nlink == 0 && status.st_dev == device && is_new(&counters->seen, status.st_ino))
                        counters->amount.bytes += (uint64_t) status.st_blocks * BLOCK;
        }
        if (directory)
                (void) closedir(directory);
}

void disk_counters_add_removed(struct disk_counters *counters, int dir_fd, const int *pids, size_t n_pids) {
        struct stat status;
        size_t left = OPEN_FILES_MAX;
        if (fstat(dir_fd, &status) < 0)
                return;
        for (size_t i = 0; i < n_pids && left > 0; i++)
                add_removed_of(counters, status.st_dev, pids[i], &left);
}
