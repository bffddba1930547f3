#include "api/zip.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/zip_format.h"
#include "base/fd.h"
#include "base/utf8.h"
#include "store/artifact.h"
#include "store/workspace.h"

struct zip {
        struct zip_format *format;
        int workspace_fd, file_fd; /* file_fd -1: no file is open */
        uint64_t read, left;       /* of the open file */
        bool is_over;
};

struct zip *zip_open(int workspace_fd, struct artifact_list *list) {
        struct zip *zip = calloc(1, sizeof(*zip));
        struct zip_format *format = zip_format_new(list);
        if (!zip || !format) {
                fd_close(&workspace_fd);
                zip_format_free(format);
                free(zip);
                return NULL;
        }
        *zip = (struct zip) { .format = format, .workspace_fd = workspace_fd, .file_fd = -1 };
        return zip;
}

void zip_close(struct zip *zip) {
        fd_close(&zip->file_fd);
        fd_close(&zip->workspace_fd);
        zip_format_free(zip->format);
        free(zip);
}

/* Opens the next file and writes its head, or skips it if it is missing or no regular file. */
static size_t begin_file(struct zip *zip, const char *path, char *bytes) {
        struct stat status;
        int fd = utf8_is_valid(path, strlen(path))
                         ? workspace_open(zip->workspace_fd, path, WORKSPACE_NO_LINKS, &status, NULL)
                         : -1;
        if (fd < 0 || !S_ISREG(status.st_mode)) {
                fd_close(&fd);
                zip_format_skip(zip->format);
                return 0;
        }
        zip->file_fd = fd;
        zip->read = 0;
        zip->left = (uint64_t) status.st_size;
        return zip_format_begin(zip->format, zip->left, status.st_mtim.tv_sec, bytes);
}

/* One block, or the end. Blocks are full but for the last one, unless the file was shortened: then that was all. */
static ssize_t put_block(struct zip *zip, char *bytes) {
        enum { AT = ZIP_FORMAT_UNIT_MAX - ZIP_FORMAT_BLOCK_MAX };
        size_t wanted = zip->left < ZIP_FORMAT_BLOCK_MAX ? (size_t) zip->left : ZIP_FORMAT_BLOCK_MAX;
        ssize_t n = wanted ? workspace_read(zip->file_fd, bytes + AT, wanted, zip->read) : 0;
        if (n < 0)
                return n;
        zip->read += (uint64_t) n;
        zip->left = (size_t) n == wanted ? zip->left - wanted : 0;
        if (n > 0)
                return (ssize_t) zip_format_block(zip->format, bytes + AT, (size_t) n, bytes);
        fd_close(&zip->file_fd);
        return (ssize_t) zip_format_end(zip->format, bytes);
}

static ssize_t make_unit(struct zip *zip, char *bytes) {
        if (zip->file_fd >= 0)
                return put_block(zip, bytes);
        const struct artifact *next = zip_format_next(zip->format);
        if (next)
                return (ssize_t) begin_file(zip, next->path, bytes);
        size_t n = zip_format_finish(zip->format, bytes);
        zip->is_over = n == 0;
        return (ssize_t) n;
}

ssize_t zip_read(struct zip *zip, char *bytes, size_t room) {
        size_t used = 0;
        while (!zip->is_over && room - used >= ZIP_FORMAT_UNIT_MAX) {
                ssize_t n = make_unit(zip, bytes + used);
                if (n < 0)
                        return n;
                used += (size_t) n;
        }
        return (ssize_t) used;
}
