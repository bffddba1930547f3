#include "api/key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "base/units.h"
#include "http/text.h"

int api_key_make(char ret_key[static API_KEY_SIZE], struct err *err) {
        uint8_t random[32];
        if (getrandom(random, sizeof(random), 0) != (ssize_t) sizeof(random))
                return err_sys(err, errno, "reading random bytes for a key");
        char *at = stpcpy(ret_key, "gb_");
        for (size_t i = 0; i < sizeof(random); i++)
                at += sprintf(at, "%02x", random[i]);
        explicit_bzero(random, sizeof(random));
        return 0;
}

static bool key_is_name(const char *name) {
        size_t size = strlen(name);
        return size > 0 && size <= API_KEY_NAME_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == size;
}

static int check_new(const struct api_keys *keys, const char *name, struct err *err) {
        if (!key_is_name(name))
                return err_set(err, ERR_USAGE, "%.60s is not a key's name; use up to %d of a-z, 0-9, - and _", name,
                               API_KEY_NAME_MAX);
        for (size_t i = 0; i < keys->n; i++)
                if (strcmp(keys->keys[i].name, name) == 0)
                        return err_set(
                                err, ERR_EXISTS,
                                "there is a key named %s already, and its text is not kept; choose another name, "
                                "or revoke it first: glovebox key rm %s",
                                name, name);
        if (keys->n == API_KEYS_MAX)
                return err_set(err, ERR_LIMIT, "there are more than %d keys", API_KEYS_MAX);
        return 0;
}

/* ---- the file's text ---- */

static int parse_digest(const char *text, uint8_t ret_digest[static SHA256_SIZE]) {
        if (strlen(text) != 2 * SHA256_SIZE)
                return -EINVAL;
        for (size_t i = 0; i < SHA256_SIZE; i++) {
                int high = http_hex_value(text[2 * i]), low = http_hex_value(text[2 * i + 1]);
                if (high < 0 || low < 0)
                        return -EINVAL;
                ret_digest[i] = (uint8_t) (high * 16 + low);
        }
        return 0;
}

static int parse_quota(struct api_key *key, const char *word, struct err *err) {
        const struct {
                const char *name;
                unsigned *value;
        } quotas[] = { { "sandboxes=", &key->sandboxes_max },
                       { "runs=", &key->runs_max },
                       { "rate=", &key->rate_max } };
        for (size_t i = 0; i < ELEMENTS(quotas); i++) {
                size_t size = strlen(quotas[i].name);
                uint64_t count;
                if (strncmp(word, quotas[i].name, size) != 0)
                        continue;
                if (units_parse_count(quotas[i].name, word + size, 1, 1000 * 1000, &count, err) < 0)
                        return -1;
                *quotas[i].value = (unsigned) count;
                return 0;
        }
        return err_set(err, ERR_USAGE, "%.60s is none of sandboxes=, runs= and rate=", word);
}

static int parse_line(struct api_keys *keys, char *line, struct err *err) {
        struct api_key key = { 0 };
        char *rest;
        const char *name = strtok_r(line, " \t", &rest);
        if (!name || *name == '#')
                return 0;
        const char *digest = strtok_r(NULL, " \t", &rest);
        if (check_new(keys, name, err) < 0)
                return -1;
        (void) strcpy(key.name, name);
        if (!digest || parse_digest(digest, key.digest) < 0)
                return err_set(err, ERR_USAGE, "the key %s has no SHA-256 of 64 hexadecimal digits", name);
        for (const char *word; (word = strtok_r(NULL, " \t", &rest));)
                if (*word == '#')
                        break;
                else if (parse_quota(&key, word, err) < 0)
                        return err_prefix(err, "the key %s", name);
        keys->keys[keys->n++] = key;
        return 0;
}

int api_keys_parse(struct api_keys *keys, const char *text, struct err *err) {
        for (unsigned number = 1; *text; number++) {
                char line[512];
                size_t size = strcspn(text, "\r\n");
                if (size >= sizeof(line))
                        return err_set(err, ERR_USAGE, "line %u is longer than %zu bytes", number, sizeof(line) - 1);
                memcpy(line, text, size);
                line[size] = '\0';
                if (parse_line(keys, line, err) < 0)
                        return err_prefix(err, "line %u", number);
                text += size;
                text += strncmp(text, "\r\n", 2) == 0 ? 2 : *text != '\0';
        }
        return 0;
}

/* ---- the file ---- */

static int check_file(int fd, const char *path, struct err *err) {
        struct stat status;
        if (fstat(fd, &status) < 0)
                return err_sys(err, errno, "looking at %s", path);
        if (!S_ISREG(status.st_mode))
                return err_set(err, ERR_USAGE, "%s is not a file", path);
        if ((status.st_uid != geteuid() && status.st_uid != 0) || status.st_mode & 077)
                return err_set(err, ERR_PERMISSION,
                               "the file of keys %s is open to others; make it yours with chown and chmod 600", path);
        return 0;
}

static int key_load(struct api_keys *keys, int fd, const char *path, struct err *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        if (check_file(fd, path, err) < 0)
                return -1;
        int code = fd_read_to_end(fd, API_KEY_FILE_MAX, &text, &size);
        if (code < 0)
                return err_sys(err, -code, "reading the keys in %s", path);
        if (strlen(text) != size)
                return err_set(err, ERR_USAGE, "the file of keys %s holds a NUL byte", path);
        return api_keys_parse(keys, text, err) < 0 ? err_prefix(err, "%s", path) : 0;
}

int api_keys_load(struct api_keys *keys, const char *path, struct err *err) {
        _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
        return fd < 0 ? err_sys(err, errno, "opening the keys in %s", path) : key_load(keys, fd, path, err);
}

static int check_plain(const char *key, struct err *err) {
        size_t size = strlen(key);
        if (size < API_KEY_LENGTH_MIN || size > API_KEY_LENGTH_MAX)
                return err_set(err, ERR_USAGE,
                               "a key has %d to %d characters, this one %zu; glovebox serve --new-key makes a good one",
                               API_KEY_LENGTH_MIN, API_KEY_LENGTH_MAX, size);
        for (size_t i = 0; i < size; i++)
                if (key[i] <= ' ' || key[i] > '~')
                        return err_set(err, ERR_USAGE, "a key is made of printable ASCII characters without spaces");
        return 0;
}

int api_keys_append(const char *path, const char *name, const char *key, struct err *err) {
        struct api_keys keys = { 0 };
        if (check_plain(key, err) < 0)
                return -1;
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || flock(fd, LOCK_EX) < 0)
                return err_sys(err, errno, "opening the keys in %s", path);
        if (key_load(&keys, fd, path, err) < 0 || check_new(&keys, name, err) < 0)
                return -1;
        char hex[2 * SHA256_SIZE + 1], line[API_KEY_NAME_MAX + 2 * SHA256_SIZE + 8];
        /* The line break first: the last line may have been written without one. */
        int size = snprintf(line, sizeof(line), "\n%s %s\n", name, sha256_hex(key, strlen(key), hex));
        bool is_empty = lseek(fd, 0, SEEK_END) == 0;
        int code = fd_write_all(fd, line + is_empty, (size_t) size - is_empty);
        if (code == 0 && fsync(fd) < 0)
                code = -errno;
        return code < 0 ? err_sys(err, -code, "writing the keys in %s", path) : 0;
}

/* True if the line defines this key. Comments and other keys stay as they are. */
static bool is_line_of(const char *line, size_t size, const char *name) {
        size_t blank = 0;
        while (blank < size && (line[blank] == ' ' || line[blank] == '\t'))
                blank++;
        size_t length = strlen(name);
        return size - blank > length && strncmp(line + blank, name, length) == 0 &&
               (line[blank + length] == ' ' || line[blank + length] == '\t');
}

/* The text without the key's line, in place. */
static bool strike_line(char *text, const char *name) {
        bool is_found = false;
        char *to = text;
        for (const char *at = text; *at;) {
                size_t size = strcspn(at, "\n"), whole = size + (at[size] == '\n');
                if (is_line_of(at, size, name))
                        is_found = true;
                else {
                        memmove(to, at, whole);
                        to += whole;
                }
                at += whole;
        }
        *to = '\0';
        return is_found;
}

static int replace_file(const char *path, const char *text, struct err *err) {
        char beside[4300];
        (void) snprintf(beside, sizeof(beside), "%.4200s.new", path);
        _cleanup_fd_ int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        int code = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
        if (code == 0 && (fsync(fd) < 0 || rename(beside, path) < 0))
                code = -errno;
        if (code < 0 && fd >= 0)
                (void) unlink(beside);
        return code < 0 ? err_sys(err, -code, "writing the keys in %s", path) : 0;
}

int api_keys_strike(const char *path, const char *name, struct err *err) {
        _cleanup_free_ char *text = NULL;
        size_t size;
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && errno == ENOENT)
                return err_set(err, ERR_NOT_FOUND, "there is no key \"%.60s\": no key was ever made", name);
        if (fd < 0 || flock(fd, LOCK_EX) < 0)
                return err_sys(err, errno, "opening the keys in %s", path);
        if (check_file(fd, path, err) < 0)
                return -1;
        int code = fd_read_to_end(fd, API_KEY_FILE_MAX, &text, &size);
        if (code < 0)
                return err_sys(err, -code, "reading the keys in %s", path);
        if (!strike_line(text, name))
                return err_set(err, ERR_NOT_FOUND, "there is no key \"%.60s\"; \"glovebox key ls\" lists them", name);
        return replace_file(path, text, err);
}

int api_key_hash(const char *name, const char *plain, struct api_key *ret_key, struct err *err) {
        static const struct api_keys none;
        struct sha256 sha;
        if (check_new(&none, name, err) < 0 || check_plain(plain, err) < 0)
                return -1;
        *ret_key = (struct api_key) { 0 };
        (void) strcpy(ret_key->name, name);
        sha256_init(&sha);
        sha256_add(&sha, plain, strlen(plain));
        sha256_finish(&sha, ret_key->digest);
        explicit_bzero(&sha, sizeof(sha));
        return 0;
}

int api_keys_add(struct api_keys *keys, const struct api_key *key, struct err *err) {
        if (check_new(keys, key->name, err) < 0)
                return -1;
        keys->keys[keys->n++] = *key;
        return 0;
}

/* ---- finding a key ---- */

/* No branch and no index depends on the digests. */
static unsigned digest_differs(const uint8_t *a, const uint8_t *b) {
        unsigned difference = 0;
        for (size_t i = 0; i < SHA256_SIZE; i++)
                difference |= (unsigned) (a[i] ^ b[i]);
        return difference;
}

const struct api_key *api_keys_find(const struct api_keys *keys, const char *key) {
        uint8_t digest[SHA256_SIZE];
        struct sha256 sha;
        size_t size = strlen(key);
        sha256_init(&sha);
        sha256_add(&sha, key, size <= API_KEY_LENGTH_MAX ? size : 0);
        sha256_finish(&sha, digest);
        const struct api_key *found = NULL;
        for (size_t i = 0; i < keys->n; i++)
                if (!digest_differs(digest, keys->keys[i].digest))
                        found = &keys->keys[i]; /* no break: how many keys stand before it stays unknown */
        return size > 0 && size <= API_KEY_LENGTH_MAX ? found : NULL;
}

const char *api_key_of(const struct http_request *request) {
        static const char scheme[] = "Bearer ";
        const char *authorization = http_header(request, "Authorization"), *other = http_header(request, "X-API-Key");
        if (!authorization)
                return other;
        if (!http_same_sized(authorization, strcspn(authorization, " "), "Bearer") ||
            strlen(authorization) < sizeof(scheme))
                return NULL;
        const char *key = authorization + sizeof(scheme) - 1;
        return !other || strcmp(key, other) == 0 ? key : NULL;
}
