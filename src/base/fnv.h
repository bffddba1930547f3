/* FNV-1a: a quick hash of a few bytes. Not for input that an attacker chooses, and not a checksum. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FNV_START 2166136261u

/* `hash` is FNV_START, or the hash of the bytes before. */
static inline uint32_t fnv_add(uint32_t hash, const void *bytes, size_t size) {
        const unsigned char *at = bytes;
        for (size_t i = 0; i < size; i++)
                hash = (hash ^ at[i]) * 16777619u;
        return hash;
}

static inline uint32_t fnv_of_text(const char *text) {
        return fnv_add(FNV_START, text, strlen(text));
}
