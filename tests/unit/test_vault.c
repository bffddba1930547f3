#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "scratch.h"
#include "tap.h"
#include "vault/vault.h"
#include "vault/vault_process.h"

static char dir[256], path[300];
static struct err err;

static int open_it(struct vault *ret_vault, bool *ret_new) {
        err = (struct err) { 0 };
        *ret_vault = (struct vault) { .fd = -1 };
        return vault_open(path, ret_vault, ret_new, &err);
}

/* The entries that vault_each reported. */
struct seen {
        size_t n;
        char names[4096];
        char note[VAULT_NOTE_MAX];
        size_t note_size;
        int fds[VAULT_FDS_MAX];
        size_t n_fds;
};

static void close_seen(struct seen *seen) {
        for (size_t i = 0; i < seen->n_fds; i++)
                close(seen->fds[i]);
        seen->n_fds = 0;
}

static void see(const char *name, const void *note, size_t note_size, int *fds, size_t n_fds, void *context) {
        struct seen *seen = context;
        close_seen(seen);
        seen->n++;
        strncat(seen->names, name, sizeof(seen->names) - strlen(seen->names) - 2);
        strcat(seen->names, " ");
        memcpy(seen->note, note, note_size);
        seen->note_size = note_size;
        memcpy(seen->fds, fds, n_fds * sizeof(int));
        seen->n_fds = n_fds;
}

static struct seen *look(struct vault *vault) {
        static struct seen seen;
        close_seen(&seen);
        memset(&seen, 0, sizeof(seen));
        if (vault_each(vault, see, &seen, &err) < 0)
                strcpy(seen.names, "?");
        return &seen;
}

/* Whether every other end of this pipe is closed: it is the moment the last of them is. */
static bool is_at_end(int read_fd) {
        char byte;
        (void) fcntl(read_fd, F_SETFL, O_NONBLOCK);
        return read(read_fd, &byte, 1) == 0;
}

/* The vault is this process's child, because the test is a subreaper. */
static pid_t find_vault(void) {
        DIR *proc = opendir("/proc");
        must(proc != NULL, "/proc");
        pid_t found = 0;
        for (struct dirent *entry; (entry = readdir(proc));) {
                char stat_path[300], text[200] = "", comm[20];
                int pid, parent;
                (void) snprintf(stat_path, sizeof(stat_path), "/proc/%.200s/stat", entry->d_name);
                int fd = atoi(entry->d_name) > 0 ? open(stat_path, O_RDONLY | O_CLOEXEC) : -1;
                if (fd < 0)
                        continue;
                if (read(fd, text, sizeof(text) - 1) > 0 &&
                    sscanf(text, "%d (%15[^)]) %*c %d", &pid, comm, &parent) == 3 && parent == getpid() &&
                    strcmp(comm, "glovebox-vault") == 0)
                        found = pid;
                close(fd);
        }
        closedir(proc);
        return found;
}

static void test_it_outlives_its_opener(void) {
        int marker[2], held[2];
        must(pipe2(marker, O_CLOEXEC) == 0 && pipe2(held, O_CLOEXEC) == 0, "pipe");
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
                struct vault vault;
                bool is_new = false;
                if (open_it(&vault, &is_new) < 0 || !is_new ||
                    vault_put(&vault, "box", "a\0note", 6, (int[]) { held[1], held[0] }, 2, &err) < 0)
                        _exit(1);
                (void) kill(getpid(), SIGKILL);
        }
        int status = 0;
        must(waitpid(child, &status, 0) == child, "waitpid");
        ok(WIFSIGNALED(status), "a daemon starts a vault, puts two descriptors there, and is killed");
        close(held[1]);
        close(marker[1]);
        ok(is_at_end(marker[0]), "the vault keeps nothing else of it open");

        pid_t vault_pid = find_vault();
        ok(vault_pid > 0, "it lives on, under its own name");
        ok(getsid(vault_pid) != getsid(0), "in a session of its own");
        struct stat mode;
        ok(stat(path, &mode) == 0 && (mode.st_mode & 0777) == 0600, "and only its user can reach it");
        static const int signals[] = { SIGHUP, SIGINT, SIGTERM };
        for (size_t i = 0; i < 3; i++)
                (void) kill(vault_pid, signals[i]);

        struct vault vault, second;
        bool is_new = true;
        ok(open_it(&vault, &is_new) == 0 && !is_new, "the next daemon finds it, after HUP, INT and TERM");
        struct seen *seen = look(&vault);
        is_text(seen->names, "box ", "with what it holds");
        ok(seen->note_size == 6 && memcmp(seen->note, "a\0note", 6) == 0, "the note");
        ok(seen->n_fds == 2 && (fcntl(seen->fds[0], F_GETFD) & FD_CLOEXEC), "the descriptors");
        char byte = 0;
        ok(seen->n_fds == 2 && write(seen->fds[0], "x", 1) == 1 && read(held[0], &byte, 1) == 1 && byte == 'x',
           "in order");
        ok(open_it(&second, &is_new) < 0 && err.code == ERR_BUSY,
           "a second daemon is refused while the first is connected");
        close_seen(seen);
        ok(!is_at_end(held[0]), "the vault still holds its copy");
        ok(vault_end(&vault, &err) == 0 && vault.fd < 0, "it ends on request");
        ok(is_at_end(held[0]), "and with it what it held");
        ok(waitpid(vault_pid, &status, 0) == vault_pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "in order");
        ok(access(path, F_OK) < 0, "its socket is gone");
        close(held[0]);
        close(marker[0]);
}

static void test_entries(void) {
        int a[2], b[2];
        must(pipe2(a, O_CLOEXEC) == 0 && pipe2(b, O_CLOEXEC) == 0, "pipe");
        struct vault vault;
        bool is_new = false;
        must(open_it(&vault, &is_new) == 0, err.message);
        ok(is_new && look(&vault)->n == 0, "a new vault is empty");
        ok(vault_put(&vault, "one", NULL, 0, &a[1], 1, &err) == 0 &&
                   vault_put(&vault, "two", "2", 1, NULL, 0, &err) == 0 &&
                   vault_put(&vault, "three", "3", 1, &b[1], 1, &err) == 0,
           "three entries");
        close(a[1]);
        is_text(look(&vault)->names, "one two three ", "come in their order");
        ok(!is_at_end(a[0]), "held");
        ok(vault_put(&vault, "one", "new", 3, &b[1], 1, &err) == 0, "replaced");
        close_seen(look(&vault));
        ok(is_at_end(a[0]), "the old descriptor is closed");
        is_text(look(&vault)->names, "one two three ", "in its old place");
        ok(vault_drop(&vault, "two", &err) == 0 && vault_drop(&vault, "one", &err) == 0, "dropped");
        is_text(look(&vault)->names, "three ", "and gone");
        ok(vault_drop(&vault, "one", &err) < 0 && err.code == ERR_NOT_FOUND, "once");
        char name[VAULT_NAME_MAX + 2], note[VAULT_NOTE_MAX + 1];
        memset(name, 'n', sizeof(name));
        memset(note, 'x', sizeof(note));
        name[VAULT_NAME_MAX + 1] = '\0';
        ok(vault_put(&vault, name, NULL, 0, NULL, 0, &err) < 0 && err.code == ERR_USAGE, "a name that is too long");
        ok(vault_put(&vault, "", NULL, 0, NULL, 0, &err) < 0 && err.code == ERR_USAGE, "an empty name");
        ok(vault_put(&vault, "n", note, sizeof(note), NULL, 0, &err) < 0 && err.code == ERR_LIMIT,
           "a note that is too long");
        name[VAULT_NAME_MAX] = '\0';
        int fds[VAULT_FDS_MAX];
        for (size_t i = 0; i < VAULT_FDS_MAX; i++)
                fds[i] = b[1];
        ok(vault_put(&vault, name, note, VAULT_NOTE_MAX, fds, VAULT_FDS_MAX, &err) == 0, "the largest entry");
        vault_close(&vault);
        must(open_it(&vault, &is_new) == 0, err.message);
        struct seen *seen = look(&vault);
        ok(!is_new && seen->n == 2 && seen->note_size == VAULT_NOTE_MAX && seen->n_fds == VAULT_FDS_MAX,
           "is there for the next connection");
        close_seen(seen);

        pid_t pid = find_vault();
        must(pid > 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "kill");
        ok(vault_put(&vault, "late", NULL, 0, NULL, 0, &err) < 0 && err.code == ERR_GONE,
           "a vault that died is said so");
        vault_close(&vault);
        ok(access(path, F_OK) == 0 && open_it(&vault, &is_new) == 0 && is_new, "and its dead socket is replaced");
        ok(vault_end(&vault, &err) == 0, "ended");
        (void) waitpid(-1, NULL, 0);
        close(a[0]);
        close(b[0]);
        close(b[1]);
}

static void test_what_is_in_its_place_is_not_destroyed(void) {
        struct vault vault;
        bool is_new;
        scratch_write(dir, "vault", "precious", 8);
        ok(open_it(&vault, &is_new) < 0 && scratch_size(dir, "vault") == 8, "a file at its path stays");
        must(unlink(path) == 0, "unlink");
        char deep[800];
        int length = snprintf(deep, sizeof(deep), "%s/", dir);
        for (int i = 0; i < 3; i++) {
                memset(deep + length, 'd', 100);
                length += 100;
                deep[length] = '\0';
                must(mkdir(deep, 0700) == 0, "mkdir");
                deep[length++] = '/';
        }
        (void) strcpy(deep + length, "vault");
        ok(vault_open(deep, &vault, &is_new, &err) == 0 && is_new, "a path longer than a socket's name can be");
        vault_close(&vault);
        ok(vault_open(deep, &vault, &is_new, &err) == 0 && !is_new && vault_end(&vault, &err) == 0, "is found again");
        (void) waitpid(-1, NULL, 0);
        ok(access(deep, F_OK) < 0, "and cleaned up");
        ok(vault_open("relative", &vault, &is_new, &err) < 0 && err.code == ERR_USAGE, "a relative path");
}

/* Many daemons at once: they take turns, and one of them starts the vault. */
static void test_openers_do_not_race(void) {
        enum { OPENERS = 8 };
        int news[2];
        must(pipe2(news, O_CLOEXEC) == 0, "pipe");
        pid_t openers[OPENERS];
        for (int i = 0; i < OPENERS; i++) {
                openers[i] = fork();
                must(openers[i] >= 0, "fork");
                if (openers[i] > 0)
                        continue;
                struct vault vault;
                bool is_new = false;
                while (open_it(&vault, &is_new) < 0) {
                        if (err.code != ERR_BUSY)
                                _exit(1);
                        struct timespec pause = { .tv_nsec = 5000000 };
                        nanosleep(&pause, NULL);
                }
                char name[20];
                (void) snprintf(name, sizeof(name), "from-%d", i);
                _exit((is_new && write(news[1], "n", 1) != 1) || vault_put(&vault, name, NULL, 0, NULL, 0, &err) < 0);
        }
        int failed = 0, status;
        for (int i = 0; i < OPENERS; i++) {
                must(waitpid(openers[i], &status, 0) == openers[i], "waitpid");
                failed += status != 0;
        }
        close(news[1]);
        char bytes[OPENERS];
        ssize_t n_new = read(news[0], bytes, sizeof(bytes));
        close(news[0]);
        struct vault vault;
        bool is_new;
        ok(failed == 0 && n_new == 1, "of %d daemons at once each got in, and one started the vault", OPENERS);
        ok(open_it(&vault, &is_new) == 0 && !is_new && look(&vault)->n == OPENERS,
           "which has what all of them put there");
        ok(vault_end(&vault, &err) == 0, "ended");
        (void) waitpid(-1, NULL, 0);
}

static void test_an_idle_vault_ends(void) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%.100s", path);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        must(fd >= 0 && bind(fd, (struct sockaddr *) &address, sizeof(address)) == 0 && listen(fd, 4) == 0, "listen");
        /* Connected before it starts, so that it is not idle however long that takes. */
        struct vault vault = { .fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) };
        must(connect(vault.fd, (struct sockaddr *) &address, sizeof(address)) == 0, "connect");
        bool is_new = true;
        pid_t pid = fork();
        must(pid >= 0, "fork");
        if (pid == 0)
                vault_process_run(fd, path, 300);
        close(fd);
        char hello[256];
        ok(recv(vault.fd, hello, sizeof(hello), 0) > 0 && vault_put(&vault, ".beside", NULL, 0, NULL, 0, &err) == 0 &&
                   vault_put(&vault, "kept", NULL, 0, NULL, 0, &err) == 0,
           "one entry, and one with a dot");
        vault_close(&vault);
        struct timespec pause = { .tv_sec = 1 };
        nanosleep(&pause, NULL);
        ok(open_it(&vault, &is_new) == 0 && !is_new && look(&vault)->n == 2,
           "a vault with an entry waits for its daemon");
        ok(vault_drop(&vault, "kept", &err) == 0, "the entry is dropped");
        vault_close(&vault);
        int status = 1;
        ok(waitpid(pid, &status, 0) == pid && status == 0,
           "an unused one ends by itself, although it has an entry with a dot");
        ok(access(path, F_OK) < 0, "and removes its socket");
}

static void test_a_vault_whose_directory_is_gone_ends(void) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%.90s-other", path); /* it has no lock beside it */
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        int client = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        must(bind(fd, (struct sockaddr *) &address, sizeof(address)) == 0 && listen(fd, 4) == 0, "listen");
        must(connect(client, (struct sockaddr *) &address, sizeof(address)) == 0, "connect");
        pid_t pid = fork();
        must(pid >= 0, "fork");
        if (pid == 0)
                vault_process_run(fd, address.sun_path, 50);
        close(fd);
        char hello[256];
        struct vault vault = { .fd = client };
        ok(recv(client, hello, sizeof(hello), 0) > 0 && vault_put(&vault, "kept", NULL, 0, NULL, 0, &err) == 0,
           "another vault has an entry");
        (void) unlink(address.sun_path);
        close(client);
        int status = 1;
        ok(waitpid(pid, &status, 0) == pid && status == 0,
           "one whose directory was removed ends, although it has an entry");
}

/* In a child, whose limit of open files is lower. */
static int fill_it(void) {
        struct rlimit limit = { 100, 100 };
        struct vault vault;
        bool is_new;
        if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || open_it(&vault, &is_new) < 0)
                return 1;
        int n = 0;
        char name[20];
        for (; n < 200; n++) {
                (void) snprintf(name, sizeof(name), "entry-%d", n);
                if (vault_put(&vault, name, NULL, 0, (int[]) { 0, 1 }, 2, &err) < 0)
                        break;
        }
        if (n < 10 || n == 200 || err.code != ERR_LIMIT)
                return 2;
        if (look(&vault)->n != (size_t) n)
                return 3;
        if (vault_drop(&vault, "entry-0", &err) < 0 || vault_put(&vault, name, NULL, 0, (int[]) { 0, 1 }, 2, &err) < 0)
                return 4;
        return vault_end(&vault, &err) < 0 ? 5 : 0;
}

static void test_a_full_vault_says_so_and_holds_what_it_has(void) {
        pid_t child = fork();
        must(child >= 0, "fork");
        if (child == 0)
                _exit(fill_it());
        int status = 0;
        must(waitpid(child, &status, 0) == child, "waitpid");
        ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a full vault refuses more and loses nothing (%d)",
           WEXITSTATUS(status));
        while (waitpid(-1, NULL, 0) > 0)
                continue;
}

int main(void) {
        /* If anything hangs: the test fails, and does not stay. */
        (void) alarm(120);
        must(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0, "PR_SET_CHILD_SUBREAPER");
        scratch_make(dir);
        (void) snprintf(path, sizeof(path), "%s/vault", dir);
        test_it_outlives_its_opener();
        test_entries();
        test_what_is_in_its_place_is_not_destroyed();
        test_openers_do_not_race();
        test_an_idle_vault_ends();
        test_a_vault_whose_directory_is_gone_ends();
        test_a_full_vault_says_so_and_holds_what_it_has();
        scratch_remove(dir);
        return done_testing();
}
