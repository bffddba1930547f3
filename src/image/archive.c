#include "image/archive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "image/interrupt.h"
#include "image/manifest.h"
#include "image/path.h"
#include "image/tar.h"

const char *archive_kind_name(enum archive_kind kind) {
        static const char *const names[] = {
                [ARCHIVE_ROOTFS] = "rootfs", [ARCHIVE_DOCKER] = "docker", [ARCHIVE_OCI] = "oci"
        };
        return names[kind];
}

static void forget_members(struct archive *archive) {
        for (size_t i = 0; i < archive->n_members; i++) {
                free(archive->members[i].name);
                free(archive->members[i].link);
        }
        free(archive->members);
        archive->members = NULL;
        archive->n_members = 0;
}

void archive_close(struct archive *archive) {
        forget_members(archive);
        json_decref(archive->config);
        archive->config = NULL;
        archive->n_layers = 0;
}

/* A link of an old docker archive: "../ID/layer.tar", seen from the member's own directory. */
static char *resolve_link(const char *name, const struct tar_entry *entry) {
        char joined[BOUND_PATH + 1], clean[BOUND_PATH + 1];
        const char *target = entry->link;
        size_t keep = 0;
        if (entry->type == TAR_SYMLINK) {
                path_split(name, joined);
                keep = strlen(joined);
        }
        for (; strncmp(target, "../", 3) == 0 && keep > 0; target += 3) {
                const char *slash = memrchr(joined, '/', keep);
                keep = slash ? (size_t) (slash - joined) : 0;
        }
        if (keep + 1 + strlen(target) > BOUND_PATH)
                return NULL;
        if (keep > 0)
                joined[keep++] = '/';
        strcpy(joined + keep, target);
        return path_clean(joined, clean, NULL) == 0 ? strdup(clean) : NULL;
}

static int add_member(struct archive *archive, const struct tar_entry *entry, const char *clean, struct err *err) {
        struct archive_member *grown =
                reallocarray(archive->members, archive->n_members + 1, sizeof(*archive->members));
        if (!grown)
                return err_sys(err, ENOMEM, "cannot read the archive");
        archive->members = grown;
        struct archive_member member = { .offset = entry->offset, .size = entry->size };
        member.name = strdup(clean);
        if (!member.name)
                return err_sys(err, ENOMEM, "cannot read the archive");
        if (entry->type != TAR_FILE)
                member.link = resolve_link(clean, entry);
        archive->members[archive->n_members++] = member;
        return 0;
}

/* By name; of one name, the one that lies later in the file first. */
static int compare_members(const void *a, const void *b) {
        const struct archive_member *one = a, *two = b;
        int order = strcmp(one->name, two->name);
        return order ? order : (one->offset < two->offset) - (one->offset > two->offset);
}

static void sort_members(struct archive *archive) {
        if (archive->n_members == 0)
                return;
        qsort(archive->members, archive->n_members, sizeof(*archive->members), compare_members);
        size_t kept = 1;
        for (size_t i = 1; i < archive->n_members; i++) {
                struct archive_member *member = &archive->members[i];
                if (strcmp(member->name, archive->members[kept - 1].name) == 0) {
                        free(member->name);
                        free(member->link);
                } else {
                        archive->members[kept++] = *member;
                }
        }
        archive->n_members = kept;
}

static int compare_with_name(const void *name, const void *member) {
        return strcmp(name, ((const struct archive_member *) member)->name);
}

const struct archive_member *archive_find(const struct archive *archive, const char *name) {
        for (int hops = 0; hops < 8 && archive->n_members > 0; hops++) {
                const struct archive_member *member = bsearch(name, archive->members, archive->n_members,
                                                              sizeof(*archive->members), compare_with_name);
                if (!member || !member->link)
                        return member;
                name = member->link;
        }
        return NULL;
}

int archive_open_member(const struct archive *archive, const struct archive_member *member, struct stream **ret_stream,
                        struct err *err) {
        return stream_open_file(archive->fd, member->offset, member->size, archive->max_bytes, ret_stream, err);
}

/* Collects the members as long as this may be a layered archive: those have few. */
static int list_members(struct archive *archive, struct stream *stream, struct err *err) {
        struct tar tar;
        struct tar_entry entry;
        char clean[BOUND_PATH + 1];
        size_t entries = 0;
        int more;
        tar_init(&tar, stream);
        while ((more = tar_next(&tar, &entry, err)) > 0) {
                if (interrupt_pending())
                        return interrupt_error(err);
                if (++entries > BOUND_ENTRIES)
                        return err_set(err, ERR_LIMIT, "the archive has more than %d entries", BOUND_ENTRIES);
                if (path_clean(entry.path, clean, err) < 0)
                        return -1;
                bool wanted = entry.type == TAR_FILE || entry.type == TAR_SYMLINK || entry.type == TAR_HARDLINK;
                if (wanted && entries <= BOUND_MEMBERS && add_member(archive, &entry, clean, err) < 0)
                        return -1;
        }
        if (more == 0 && entries == 0)
                return err_set(err, ERR_PROTOCOL, "the archive is empty");
        if (entries > BOUND_MEMBERS)
                forget_members(archive);
        return more;
}

/* Modern docker writes both documents; its manifest.json is the one that names the tag. A root file system may by
 * chance have a file of that name at its top, but then it has an /etc/passwd too, which no layered archive has. */
static enum archive_kind kind_of(const struct archive *archive) {
        if (archive_find(archive, "manifest.json") && !archive_find(archive, "etc/passwd"))
                return ARCHIVE_DOCKER;
        if (archive_find(archive, "oci-layout") && archive_find(archive, "index.json"))
                return ARCHIVE_OCI;
        return ARCHIVE_ROOTFS;
}

static int scan(struct archive *archive, struct err *err) {
        _cleanup_(stream_free) struct stream *stream = NULL;
        if (stream_open_file(archive->fd, 0, archive->size, archive->max_bytes, &stream, err) < 0 ||
            list_members(archive, stream, err) < 0)
                return -1;
        sort_members(archive);
        archive->compressed = stream_is_compressed(stream);
        archive->kind = kind_of(archive);
        if (archive->kind == ARCHIVE_ROOTFS || archive->compressed) {
                forget_members(archive);
                return 0;
        }
        return archive->kind == ARCHIVE_DOCKER ? manifest_read_docker(archive, err) : manifest_read_oci(archive, err);
}

int archive_scan(int fd, uint64_t size, uint64_t max_bytes, struct archive *ret_archive, struct err *err) {
        _cleanup_(archive_close) struct archive archive = { .fd = fd, .size = size, .max_bytes = max_bytes };
        if (scan(&archive, err) < 0)
                return -1;
        *ret_archive = archive;
        archive = (struct archive) { 0 };
        return 0;
}
