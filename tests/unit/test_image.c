/* Names, paths, places, and images opened from a store made here. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data_dir.h"
#include "base/memory.h"
#include "base/open_beneath.h"
#include "base/remove_tree.h"
#include "image/image.h"
#include "image/path.h"
#include "image/record.h"
#include "image/store.h"
#include "tap.h"

static char temp[] = "/tmp/glovebox-test-image-XXXXXX";
static struct err err;

static void test_names(void) {
        static const char *const good[] = { "a", "host", "python-3.12", "0_x" };
        static const char *const bad[] = { "", ".", "..", "-a", ".a", "A", "a/b", "a b", "a\n", "ä" };
        char name[66];
        for (size_t i = 0; i < ELEMENTS(good); i++)
                ok(image_check_name(good[i], &err) == 0, "\"%s\" is a name", good[i]);
        for (size_t i = 0; i < ELEMENTS(bad); i++)
                ok(image_check_name(bad[i], &err) < 0 && err.code == ERR_USAGE, "bad name %zu is refused", i);
        memset(name, 'a', 65);
        name[65] = '\0';
        ok(image_check_name(name, &err) < 0, "65 letters are too many");
        name[64] = '\0';
        ok(image_check_name(name, &err) == 0, "64 are not");
}

static void test_paths(void) {
        static const struct {
                const char *path, *clean; /* NULL: refused */
        } paths[] = {
                { "a/b", "a/b" }, { "/a/b", "a/b" }, { "./a//b/.", "a/b" }, { "a/", "a" },
                { "./", "" },     { "//", "" },      { "..", NULL },        { "a/../b", NULL },
                { "a/..", NULL }, { "/../x", NULL }, { "...", "..." },      { "..a/b", "..a/b" },
        };
        char clean[BOUND_PATH + 1], parent[BOUND_PATH + 1];
        for (size_t i = 0; i < ELEMENTS(paths); i++) {
                int code = path_clean(paths[i].path, clean, &err);
                ok(paths[i].clean ? code == 0 && strcmp(clean, paths[i].clean) == 0 : code < 0, "the path \"%s\"",
                   paths[i].path);
        }
        char deep[2 * BOUND_DEPTH + 4], long_name[300];
        for (size_t i = 0; i < sizeof(deep) - 1; i++)
                deep[i] = i % 2 ? '/' : 'd';
        deep[sizeof(deep) - 1] = '\0';
        ok(path_clean(deep, clean, &err) < 0 && err.code == ERR_LIMIT, "too many components are refused");
        memset(long_name, 'n', sizeof(long_name));
        long_name[256] = '\0';
        ok(path_clean(long_name, clean, &err) < 0, "a component of 256 bytes is refused");
        is_text(path_split("a/b/c", parent), "c", "the last component");
        is_text(parent, "a/b", "and its parent");
        is_text(path_split("c", parent), "c", "a path of one component");
        is_text(parent, "", "lies in the root");
}

static void test_beneath(int temp_fd) {
        ok(mkdirat(temp_fd, "b", 0755) == 0 && symlinkat("/", temp_fd, "b/out") == 0 &&
                   symlinkat("../../..", temp_fd, "b/up") == 0,
           "a directory with links that lead out");
        _cleanup_fd_ int fd = openat(temp_fd, "b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        ok(open_beneath(fd, "out/etc", O_PATH) == -ELOOP, "an absolute link is not followed");
        ok(make_directories_beneath(fd, "up/x") == -ELOOP, "nothing is made through a link");
        ok(open_beneath(fd, "..", O_PATH) == -EXDEV, "the parent cannot be opened");
        _cleanup_fd_ int inside = open_beneath_as_root(fd, "up/out", O_PATH | O_DIRECTORY);
        struct stat one, two;
        ok(inside >= 0 && fstat(inside, &one) == 0 && fstat(fd, &two) == 0 && one.st_ino == two.st_ino,
           "as a root, every way out leads back to it");
        _cleanup_fd_ int made = make_directories_beneath(fd, "x/y/z");
        ok(made >= 0 && faccessat(fd, "x/y/z", F_OK, 0) == 0, "missing directories are made");
        ok(remove_tree_at(temp_fd, "b") == 0 && access("/etc", F_OK) == 0,
           "a tree is removed, its links' targets stay");
        ok(remove_tree_at(temp_fd, "b") == 0, "removing what is not there is fine");
}

static void test_place(void) {
        char path[DATA_DIR_PATH_MAX], wanted[100];
        snprintf(wanted, sizeof(wanted), "%s/place/data", temp);
        setenv("GLOVEBOX_DATA_DIR", wanted, 1);
        setenv("SANDBOX_DATA_DIR", "/nonexistent/elsewhere", 1);
        struct stat st;
        ok(data_dir_open(path, &err) == 0 && strcmp(path, wanted) == 0, "the variable names the directory");
        ok(stat(wanted, &st) == 0 && (st.st_mode & 07777) == 0700, "it is made for its owner only");
        ok(chmod(wanted, 0770) == 0 && data_dir_open(path, &err) < 0 && err.code == ERR_REFUSED,
           "one that others may write to is refused");
        ok(chmod(wanted, 0755) == 0 && data_dir_open(path, &err) == 0, "one that others may read is not");
        setenv("GLOVEBOX_DATA_DIR", "relative", 1);
        ok(data_dir_open(path, &err) < 0 && err.code == ERR_USAGE, "a relative path is refused");
        snprintf(wanted, sizeof(wanted), "%s/place/theirs", temp);
        bool is_root = geteuid() == 0 && mkdir(wanted, 0700) == 0 && chown(wanted, 1, 1) == 0;
        setenv("GLOVEBOX_DATA_DIR", is_root ? wanted : "/usr", 1); /* /usr is root's */
        ok(data_dir_open(path, &err) < 0 && err.code == ERR_REFUSED, "somebody else's directory is refused");
        setenv("GLOVEBOX_DATA_DIR", "", 1);
        snprintf(wanted, sizeof(wanted), "%s/place/sandbox", temp);
        setenv("SANDBOX_DATA_DIR", wanted, 1);
        ok(data_dir_open(path, &err) == 0 && strcmp(path, wanted) == 0, "the other variable is the second choice");
}

static void test_store(int temp_fd) {
        char data[100];
        snprintf(data, sizeof(data), "%s/store", temp);
        _cleanup_fd_ int images_fd = -1;
        ok(mkdirat(temp_fd, "store", 0700) == 0 && store_open(data, &images_fd, &err) == 0, "a store is made");
        struct store_work one = { .fd = -1 }, two = { .fd = -1 };
        ok(store_begin(images_fd, &one, &err) == 0 && mkdirat(one.fd, "rootfs", 0755) == 0, "work begins");
        ok(mkdirat(images_fd, ".tmp-dead", 0700) == 0 && mkdirat(images_fd, ".tmp-dead/x", 0700) == 0,
           "somebody died in the middle of work");
        ok(store_begin(images_fd, &two, &err) == 0, "other work begins");
        ok(faccessat(images_fd, ".tmp-dead", F_OK, 0) < 0, "what the dead left is swept");
        ok(faccessat(images_fd, one.name, F_OK, 0) == 0, "what the living hold is not");
        ok(store_publish(&one, "first", &err) == 0, "the first becomes an image");
        ok(store_publish(&two, "first", &err) < 0 && err.code == ERR_EXISTS, "a second of the same name does not");
        store_end(&one);
        store_end(&two);
        _cleanup_free_ char(*names)[65] = NULL;
        size_t n = 0;
        ok(store_list(images_fd, &names, &n, &err) == 0 && n == 1 && strcmp(names[0], "first") == 0, "one is listed");
        ok(store_remove(images_fd, "first", NULL, &err) == 0, "it is removed");
        ok(store_remove(images_fd, "first", NULL, &err) < 0 && err.code == ERR_NOT_FOUND, "but not twice");
}

static bool shows(const struct image *image, const char *path) {
        for (size_t i = 0; i < image->n_trees; i++)
                if (strcmp(image->trees[i].path, path) == 0)
                        return true;
        for (size_t i = 0; i < image->n_links; i++)
                if (strcmp(image->links[i].path, path) == 0)
                        return true;
        return false;
}

static void test_host(void) {
        static const char *const never[] = { "/", "/etc", "/home", "/root", "/var", "/opt", "/tmp", "/etc/passwd" };
        struct image image;
        char data[100];
        snprintf(data, sizeof(data), "%s/host", temp);
        ok(mkdir(data, 0700) == 0 && image_open(data, "host", &image, &err) == 0, "the host image always exists");
        ok(shows(&image, "/usr") && shows(&image, "/bin") && image.own_etc && !image.has_layer,
           "it shows /usr and /bin");
        for (size_t i = 0; i < ELEMENTS(never); i++)
                ok(!shows(&image, never[i]), "it does not show %s", never[i]);
        ok(access(image.shell, X_OK) == 0, "it has a shell");
        image_close(&image);
        image_close(&image);
}

/* A layer for a Python version that does not exist. */
static void test_layer_of_another_python(void) {
        struct image image;
        char path[200];
        snprintf(path, sizeof(path), "%s/host/images/host/python", temp);
        ok(mkdir(path, 0755) == 0, "a layer");
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_json_ json_t *record = json_pack("{s:s}", "python", "2.0");
        ok(record_write(fd, ".glovebox.json", record, &err) == 0, "made for another Python");
        snprintf(path, sizeof(path), "%s/host", temp);
        int code = image_open(path, "host", &image, &err);
        if (code == 0 && !*image.python)
                ok(1, "is refused # SKIP this host has no Python");
        else
                ok(code < 0 && strstr(err.message, "image build"), "is refused with what to do");
        if (code == 0)
                image_close(&image);
}

static void test_imported(int temp_fd) {
        static const char *const directories[] = { "store/images/own", "store/images/own/rootfs",
                                                   "store/images/own/rootfs/usr", "store/images/own/rootfs/proc",
                                                   "store/images/own/rootfs/workspace" };
        struct image image;
        char data[100];
        snprintf(data, sizeof(data), "%s/store", temp);
        for (size_t i = 0; i < ELEMENTS(directories); i++)
                (void) mkdirat(temp_fd, directories[i], 0755);
        ok(symlinkat("/../../etc", temp_fd, "store/images/own/rootfs/bin") == 0, "an image with a link at its top");
        ok(image_open(data, "own", &image, &err) < 0, "without its record it is damaged");
        _cleanup_fd_ int fd = openat(temp_fd, "store/images/own", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_json_ json_t *record = json_pack("{s:s, s:s}", "python", "/usr/bin/python3", "shell", "");
        ok(record_write(fd, "image.json", record, &err) == 0 && image_open(data, "own", &image, &err) == 0, "it opens");
        ok(image.n_trees == 1 && strcmp(image.trees[0].path, "/usr") == 0, "it shows what the box has not of its own");
        ok(image.n_links == 1 && strcmp(image.links[0].target, "/../../etc") == 0, "a link stays a link");
        ok(image.own_etc && strcmp(image.python, "/usr/bin/python3") == 0,
           "its Python is known, its /etc is the box's");
        image_close(&image);
        ok(image_open(data, "nothing", &image, &err) < 0 && err.code == ERR_NOT_FOUND, "an unknown image is not found");
        ok(renameat(fd, "rootfs", fd, "elsewhere") == 0 && symlinkat("/", fd, "rootfs") == 0 &&
                   image_open(data, "own", &image, &err) < 0,
           "a rootfs that is a link is not followed");
}

/* Deeper than descriptors go, with a file at the bottom and a directory that its owner cannot read. */
static void make_deep(int temp_fd, const char *name) {
        enum { LEVELS = 150 };
        ok(mkdirat(temp_fd, name, 0700) == 0, "a directory");
        _cleanup_fd_ int fd = openat(temp_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        for (int i = 0; i < LEVELS && fd >= 0; i++) {
                int below = mkdirat(fd, "d", 0700) < 0 ? -1 : openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                fd_close(&fd);
                fd = below;
        }
        ok(fd >= 0 && mkdirat(fd, "closed", 0) == 0 && symlinkat("/etc", fd, "link") == 0, "%d directories in it",
           LEVELS);
}

static void test_removal(int temp_fd) {
        make_deep(temp_fd, "deep");
        ok(remove_tree_at(temp_fd, "deep") == 0 && faccessat(temp_fd, "deep", F_OK, 0) < 0, "all of it is removed");
        make_deep(temp_fd, "kept");
        _cleanup_fd_ int fd = openat(temp_fd, "kept", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat status;
        ok(fchmod(fd, 0751) == 0 && remove_tree_contents(fd) == 0, "only what is in it is removed");
        ok(fstat(fd, &status) == 0 && (status.st_mode & 0777) == 0751, "and its mode stays");
        ok(unlinkat(temp_fd, "kept", AT_REMOVEDIR) == 0, "it is empty");
        ok(symlinkat("/etc", temp_fd, "link") == 0 && remove_tree_at(temp_fd, "link") == 0 && access("/etc", F_OK) == 0,
           "of a link only the link is removed");
        ok(remove_tree_at(temp_fd, "no/such/directory") == 0, "what is not there needs no removal");
}

int main(void) {
        (void) setenv("GLOVEBOX_SHARED_DATA_DIR", "none", 1); /* nothing of this machine's own */
        unsetenv("GLOVEBOX_PYTHON");
        if (!mkdtemp(temp))
                return EXIT_FAILURE;
        _cleanup_fd_ int temp_fd = open(temp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        test_names();
        test_paths();
        test_beneath(temp_fd);
        test_removal(temp_fd);
        test_place();
        test_store(temp_fd);
        test_host();
        test_layer_of_another_python();
        test_imported(temp_fd);
        ok(remove_tree_contents(temp_fd) == 0 && rmdir(temp) == 0, "nothing is left");
        return done_testing();
}
