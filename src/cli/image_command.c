#include "cli/image_command.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/data_dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/syscalls.h"
#include "image/image.h"
#include "image/record.h"
#include "image/store.h"

static bool has_directory(int image_fd, const char *path) {
        _cleanup_fd_ int root_fd = openat(image_fd, "rootfs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_fd_ int fd = root_fd < 0 ? -1 : sys_openat2(root_fd, path, O_PATH | O_DIRECTORY, 0, RESOLVE_IN_ROOT);
        return fd >= 0;
}

/* Entry point and command, as Docker joins them. The texts stay in `config`. */
static int join_words(const json_t *config, char ***ret_words, struct err *err) {
        const json_t *lists[] = { json_object_get(config, "Entrypoint"), json_object_get(config, "Cmd") };
        char **words = calloc(json_array_size(lists[0]) + json_array_size(lists[1]) + 1, sizeof(*words));
        size_t n = 0, i;
        json_t *word;
        if (!words)
                return err_set(err, ERR_SYSTEM, "out of memory");
        for (size_t list = 0; list < ELEMENTS(lists); list++)
                json_array_foreach (lists[list], i, word)
                        if (json_is_string(word))
                                words[n++] = (char *) (uintptr_t) json_string_value(word);
        *ret_words = words;
        return 0;
}

static int take_words(struct run_request *request, struct err *err) {
        if (join_words(request->image_config, &request->image_words, err) < 0)
                return -1;
        if (!request->image_words[0] || !*request->image_words[0])
                return err_set(err, ERR_USAGE,
                               "image %.64s has no command of its own (ENTRYPOINT or CMD); write one behind --, for "
                               "example: -- ls",
                               request->image);
        request->args = request->image_words;
        return 0;
}

int image_command_choose(struct run_request *request, struct err *err) {
        char data_dir[DATA_DIR_PATH_MAX];
        bool is_shared;
        if (request->source != RUN_FROM_COMMAND || strcmp(request->image, IMAGE_HOST) == 0)
                return 0;
        if (image_check_name(request->image, err) < 0 || data_dir_open(data_dir, err) < 0)
                return -1;
        _cleanup_json_ json_t *record = NULL;
        _cleanup_fd_ int image_fd = image_open_directory(data_dir, request->image, &is_shared);
        struct err unread;
        if (image_fd < 0 || record_read(image_fd, "image.json", &record, &unread) < 0)
                return request->args[0]
                               ? 0 /* making the box reports the error */
                               : err_set(err, ERR_NOT_FOUND, "there is no image \"%.64s\"; see glovebox image list",
                                         request->image);
        request->image_config = json_incref(json_object_get(record, "config"));
        const char *directory = record_string(request->image_config, "WorkingDir");
        if (*directory == '/' && !request->workspace && has_directory(image_fd, directory))
                request->directory = directory;
        return request->args[0] ? 0 : take_words(request, err);
}
