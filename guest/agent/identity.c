#include "identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"

enum { SANDBOX_ID = 1000, ID_MAX = 65535, FILE_MAX = 1 << 20, PASSWD_FIELDS = 7, GROUP_FIELDS = 4 };

/* Not every C library finds <linux/capability.h>. */
struct cap_header {
        uint32_t version;
        int pid;
};
struct cap_data {
        uint32_t effective, permitted, inheritable;
};
enum { CAP_VERSION_3 = 0x20080522 };

static int get_capabilities(struct cap_data sets[static 2]) {
        struct cap_header header = { .version = CAP_VERSION_3 };
        return syscall(SYS_capget, &header, sets) < 0 ? -errno : 0;
}

/* Effective is all that is permitted, or nothing. */
static int set_effective(bool all) {
        struct cap_header header = { .version = CAP_VERSION_3 };
        struct cap_data sets[2];
        int code = get_capabilities(sets);
        for (size_t i = 0; i < 2; i++)
                sets[i].effective = all ? sets[i].permitted : 0;
        return code < 0 ? code : syscall(SYS_capset, &header, sets) < 0 ? -errno : 0;
}

static bool has_users;

int identity_begin(void) {
        has_users = true;
        return set_effective(false);
}

int identity_rest(void) {
        return has_users ? set_effective(false) : 0;
}

int identity_rise(void) {
        return has_users ? set_effective(true) : 0;
}

struct identity identity_of_sandbox(void) {
        return (struct identity) { .uid = SANDBOX_ID, .gid = SANDBOX_ID };
}

/* Only root of the box writes these files, but it may write anything. */
static char *read_list(const char *path) {
        char *text = NULL;
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        return fd < 0 || fd_read_to_end(fd, FILE_MAX, &text, NULL) < 0 ? NULL : text;
}

static bool parse_id(const char *text, unsigned *ret_id) {
        char *end;
        if (*text < '0' || *text > '9')
                return false;
        unsigned long id = strtoul(text, &end, 10);
        if (*end || id > ID_MAX)
                return false;
        *ret_id = (unsigned) id;
        return true;
}

/* Cuts a line into its fields; false when it has not as many. */
static bool cut_line(char *line, char **ret_fields, size_t n_fields) {
        for (size_t i = 0; i < n_fields; i++) {
                ret_fields[i] = strsep(&line, ":");
                if (!ret_fields[i])
                        return false;
        }
        return true;
}

static bool copy_text(char *to, const char *from) {
        return (size_t) snprintf(to, IDENTITY_TEXT_MAX, "%s", from) < IDENTITY_TEXT_MAX;
}

static int find_user(const char *user, struct identity *identity) {
        _cleanup_free_ char *text = read_list("/etc/passwd");
        unsigned wanted, uid, gid;
        bool is_number = parse_id(user, &wanted);
        char *rest = text, *line, *fields[PASSWD_FIELDS];
        while (text && (line = strsep(&rest, "\n"))) {
                if (!cut_line(line, fields, PASSWD_FIELDS) || !parse_id(fields[2], &uid) || !parse_id(fields[3], &gid))
                        continue;
                if (strcmp(fields[0], user) != 0 && !(is_number && uid == wanted))
                        continue;
                identity->uid = uid;
                identity->gid = gid;
                return copy_text(identity->name, fields[0]) && copy_text(identity->home, fields[5]) &&
                                       copy_text(identity->shell, fields[6])
                               ? 0
                               : -ENAMETOOLONG;
        }
        return -ENOENT;
}

static bool is_member(char *members, const char *name) {
        char *member;
        while ((member = strsep(&members, ",")))
                if (strcmp(member, name) == 0)
                        return true;
        return false;
}

static void find_groups(struct identity *identity) {
        _cleanup_free_ char *text = read_list("/etc/group");
        unsigned gid;
        char *rest = text, *line, *fields[GROUP_FIELDS];
        while (text && identity->n_groups < IDENTITY_GROUPS_MAX && (line = strsep(&rest, "\n")))
                if (cut_line(line, fields, GROUP_FIELDS) && parse_id(fields[2], &gid) && gid != identity->gid &&
                    is_member(fields[3], identity->name))
                        identity->groups[identity->n_groups++] = gid;
}

int identity_find(const char *user, struct identity *ret_identity) {
        struct identity identity = { 0 };
        int code = find_user(user, &identity);
        if (code < 0)
                return code;
        find_groups(&identity);
        *ret_identity = identity;
        return 0;
}

/* The calls themselves: the C library's would look for other threads. */
int identity_become(const struct identity *identity) {
        int code = set_effective(true);
        if (code < 0)
                return code;
        gid_t gid = identity->gid;
        uid_t uid = identity->uid;
        if (syscall(SYS_setgroups, identity->n_groups, identity->groups) < 0 ||
            syscall(SYS_setresgid, gid, gid, gid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0)
                return -errno;
        struct cap_data sets[2];
        code = get_capabilities(sets);
        bool has_any = sets[0].permitted || sets[1].permitted || sets[0].effective || sets[1].effective;
        return code < 0 ? code : uid != 0 && has_any ? -EPERM : 0;
}
