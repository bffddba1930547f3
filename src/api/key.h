/* The API keys of the service. A file holds their SHA-256 only, one line each; a reader of it cannot use them:
 *
 *     # name  sha256 of the key  quotas that differ from the default
 *     build   9f86d081…          sandboxes=10 runs=4 rate=600 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"
#include "http/http.h"

enum {
        API_KEYS_MAX = 256,
        API_KEY_NAME_MAX = 32,
        API_KEY_FILE_MAX = 64 << 10,
        API_KEY_LENGTH_MIN = 16, /* of a key that was chosen by hand */
        API_KEY_LENGTH_MAX = 512,
        API_KEY_SIZE = 3 + 64 + 1 /* "gb_", 256 bits in hexadecimal, NUL */
};

struct api_key {
        char name[API_KEY_NAME_MAX + 1];
        uint8_t digest[SHA256_SIZE];
        /* 0: the service's default. */
        unsigned sandboxes_max; /* at a time */
        unsigned runs_max;      /* at a time */
        unsigned rate_max;      /* requests in a minute */
};

struct api_keys {
        struct api_key keys[API_KEYS_MAX];
        size_t n;
};

/* A new key, to be shown once. */
int api_key_make(char ret_key[static API_KEY_SIZE], struct err *err);

/* Reads the file's text. Anything unknown is an error, so that a misspelled quota is not ignored. */
int api_keys_parse(struct api_keys *keys, const char *text, struct err *err);

/* Reads the file, which must belong to this user or to root and be closed to all others. A missing one is
 * ERR_NOT_FOUND. */
int api_keys_load(struct api_keys *keys, const char *path, struct err *err);

/* Adds a key's line to the file (made with mode 0600). ERR_EXISTS: the name is taken. */
int api_keys_append(const char *path, const char *name, const char *key, struct err *err);

/* Removes a key's line from the file, atomically. ERR_NOT_FOUND: there is none of this name. */
int api_keys_strike(const char *path, const char *name, struct err *err);

/* The record of a key that is given in plain text, as by SANDBOX_API_KEY. */
int api_key_hash(const char *name, const char *plain, struct api_key *ret_key, struct err *err);

/* ERR_EXISTS: the name is taken. */
int api_keys_add(struct api_keys *keys, const struct api_key *key, struct err *err);

/* The owner of a key, or NULL. Takes the same time for a wrong key. */
const struct api_key *api_keys_find(const struct api_keys *keys, const char *key);

/* The key of a request: "Authorization: Bearer KEY" or "X-API-Key: KEY". NULL: neither, or both and different. */
const char *api_key_of(const struct http_request *request);
