#include "image/layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/open_beneath.h"
#include "image/interrupt.h"
#include "image/record.h"
#include "image/standard_packages.h"
#include "image/store.h"

enum { STANDARD_PACKAGES_MAX = 64 };

/* Cuts the text in place. */
static size_t split_lines(char *text, const char *ret_lines[static STANDARD_PACKAGES_MAX]) {
        size_t n = 0;
        for (char *rest = text, *line; n < STANDARD_PACKAGES_MAX && (line = strsep(&rest, "\n"));)
                if (*line)
                        ret_lines[n++] = line;
        return n;
}

int layer_describe(int host_fd, json_t **ret_record, struct err *err) {
        if (host_fd < 0)
                return err_set(err, ERR_NOT_FOUND, "the host image has no layer");
        return record_read(host_fd, LAYER_DIR "/" LAYER_RECORD, ret_record, err);
}

int layer_open(int host_fd, const struct python *python, int *ret_fd, struct err *err) {
        static const char mend[] = "build it again (glovebox image build) or remove it (glovebox image rm host)";
        *ret_fd = -1;
        if (host_fd < 0)
                return 0;
        _cleanup_fd_ int fd = open_beneath(host_fd, LAYER_DIR, O_PATH | O_DIRECTORY);
        if (fd == -ENOENT)
                return 0;
        if (fd < 0)
                return err_sys(err, -fd, "cannot open the host image's Python layer; %s", mend);
        _cleanup_json_ json_t *record = NULL;
        if (layer_describe(host_fd, &record, err) < 0)
                return err_prefix(err, "the host image's Python layer is damaged; %s", mend);
        const char *version = record_string(record, "python");
        if (strcmp(version, python->version) != 0)
                return err_set(err, ERR_UNSUPPORTED,
                               "the host image's Python layer was made for Python %s, but %s is Python %s; %s", version,
                               python->path, python->version, mend);
        *ret_fd = take_fd(&fd);
        return 0;
}

static int compare_json_strings(const void *a, const void *b) {
        return strcasecmp(json_string_value(*(json_t *const *) a), json_string_value(*(json_t *const *) b));
}

static json_t *sort_texts(json_t *array) {
        size_t n = json_array_size(array);
        _cleanup_free_ json_t **items = calloc(n + 1, sizeof(*items));
        json_t *result = items ? json_array() : NULL;
        for (size_t i = 0; items && i < n; i++)
                items[i] = json_array_get(array, i);
        if (result && n > 0)
                qsort(items, n, sizeof(*items), compare_json_strings);
        for (size_t i = 0; result && i < n; i++)
                json_array_append(result, items[i]);
        json_decref(array);
        return result;
}

/* "numpy-2.0.1.dist-info" -> "numpy 2.0.1" */
static json_t *list_packages(int layer_fd) {
        static const char suffix[] = ".dist-info";
        json_t *packages = json_array();
        _cleanup_fd_ int fd = openat(layer_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (dir)
                (void) take_fd(&fd);
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
                size_t length = strlen(entry->d_name);
                if (length <= strlen(suffix) || strcmp(entry->d_name + length - strlen(suffix), suffix) != 0)
                        continue;
                entry->d_name[length - strlen(suffix)] = '\0';
                char *dash = strchr(entry->d_name, '-'); /* names in there have "_" for "-" */
                if (dash)
                        *dash = ' ';
                json_array_append_new(packages, json_string(entry->d_name));
        }
        return sort_texts(packages);
}

/* Adds up what the files below `name` hold, hard links once each. */
static int measure_tree(int dir_fd, const char *name, uint64_t *bytes, uint64_t *entries) {
        _cleanup_fd_ int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        _cleanup_dir_ DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        if (!dir)
                return -errno;
        (void) take_fd(&fd);
        struct dirent *entry;
        while ((entry = dir_next(dir))) {
                struct stat st;
                if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
                (*entries)++;
                if (S_ISREG(st.st_mode))
                        *bytes += (uint64_t) st.st_size / (st.st_nlink ? st.st_nlink : 1);
                int code = S_ISDIR(st.st_mode) ? measure_tree(dirfd(dir), entry->d_name, bytes, entries) : 0;
                if (code < 0)
                        return code;
        }
        return -errno;
}

static json_t *describe_layer(int work_fd, int layer_fd, const struct python *python, const struct pip_job *job) {
        uint64_t bytes = 0, entries = 0;
        (void) measure_tree(work_fd, LAYER_DIR, &bytes, &entries);
        json_t *requested = json_array();
        for (size_t i = 0; i < job->n_packages; i++)
                json_array_append_new(requested, json_string(job->packages[i]));
        return json_pack("{s:s, s:s, s:I, s:o, s:o, s:I, s:I}", "python", python->version, "interpreter", python->path,
                         "created", (json_int_t) time(NULL), "requested", requested, "packages",
                         list_packages(layer_fd), "bytes", (json_int_t) bytes, "entries", (json_int_t) entries);
}

/* These become arguments of pip: options, paths and addresses are refused. */
static int check_packages(const struct layer_request *request, struct err *err) {
        static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-[]<>=!~,*+ ";
        for (size_t i = 0; i < request->n_packages; i++) {
                const char *package = request->packages[i];
                if (!*package || strspn(package, good) != strlen(package) || strlen(package) > 200 ||
                    !strchr(good, package[0]) || strchr("._-[]<>=!~,*+ ", package[0]))
                        return err_set(err, ERR_USAGE,
                                       "\"%.100s\" is not a package; write for example numpy or pandas==2.2.3, or put "
                                       "addresses and paths in a --requirements file",
                                       package);
        }
        return 0;
}

static int layer_fill(struct store_work *work, struct pip_job *job, const struct python *python, json_t **ret_record,
                      struct err *err) {
        if (mkdirat(work->fd, LAYER_DIR, 0755) < 0)
                return err_sys(err, errno, "cannot make the layer's directory");
        if (pip_install(job, err) < 0)
                return -1;
        _cleanup_fd_ int layer_fd = open_beneath(work->fd, LAYER_DIR, O_RDONLY | O_DIRECTORY);
        if (layer_fd < 0)
                return err_sys(err, -layer_fd, "cannot open the layer's directory");
        _cleanup_json_ json_t *record = describe_layer(work->fd, layer_fd, python, job);
        if (!record)
                return err_sys(err, ENOMEM, "cannot describe the layer");
        if (record_write(layer_fd, LAYER_RECORD, record, err) < 0)
                return -1;
        if (interrupt_pending())
                return interrupt_error(err);
        if (store_replace(work, IMAGE_HOST, LAYER_DIR, err) < 0)
                return -1;
        *ret_record = take_ptr(record);
        return 0;
}

static int build(int images_fd, const char *data_dir, struct pip_job *job, json_t **ret_record, struct err *err) {
        _cleanup_fd_ int host_fd = make_directories_beneath(images_fd, IMAGE_HOST);
        if (host_fd < 0)
                return err_sys(err, -host_fd, "cannot open the host image");
        struct python python;
        if (python_choose(host_fd, &python, err) < 0)
                return -1;
        _cleanup_(store_end) struct store_work work = { .fd = -1 };
        char directory[4096], target[4096];
        if (store_begin(images_fd, &work, err) < 0)
                return -1;
        if ((size_t) snprintf(directory, sizeof(directory), "%s/images/%s", data_dir, work.name) >= sizeof(directory) ||
            (size_t) snprintf(target, sizeof(target), "%s/images/%s/" LAYER_DIR, data_dir, work.name) >= sizeof(target))
                return err_sys(err, ENAMETOOLONG, "the data directory's path is too long; set GLOVEBOX_DATA_DIR");
        job->interpreter = python.path;
        job->work_dir = directory;
        job->target = target;
        return layer_fill(&work, job, &python, ret_record, err);
}

int layer_build(const char *data_dir, const struct layer_request *request, json_t **ret_record, struct err *err) {
        struct pip_job job = {
                .packages = request->packages,
                .n_packages = request->n_packages,
                .allow_source = request->allow_source,
                .report = request->report,
                .context = request->context,
        };
        _cleanup_free_ char *requirements = NULL, *standard = NULL;
        const char *packages[STANDARD_PACKAGES_MAX];
        if (check_packages(request, err) < 0)
                return -1;
        if (request->requirements) {
                requirements = realpath(request->requirements, NULL); /* pip runs in another directory */
                if (!requirements || access(requirements, R_OK) < 0)
                        return err_sys(err, errno, "cannot read %.300s", request->requirements);
                job.requirements = requirements;
        } else if (job.n_packages == 0) {
                standard = strndup(standard_packages, standard_packages_size());
                if (!standard)
                        return err_sys(err, ENOMEM, "cannot list the packages");
                job.n_packages = split_lines(standard, packages);
                job.packages = packages;
        }
        _cleanup_fd_ int images_fd = -1;
        if (store_open(data_dir, &images_fd, err) < 0)
                return -1;
        mode_t mask = umask(022);
        interrupt_begin();
        int code = build(images_fd, data_dir, &job, ret_record, err);
        interrupt_end();
        (void) umask(mask);
        return code;
}
