/* SHA-256 (FIPS 180-4), for names of things: programs, layers, keys. Small instead of fast. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_BLOCK = 64 };

struct sha256 {
        uint32_t state[8];
        uint64_t n_bytes;
        uint8_t block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *bytes, size_t size);

/* Ends the computation; sha must be initialised again before further use. */
void sha256_finish(struct sha256 *sha, uint8_t ret_digest[static SHA256_SIZE]);

/* All in one, as 64 lower-case hexadecimal digits. Returns ret_hex. */
const char *sha256_hex(const void *bytes, size_t size, char ret_hex[static 2 * SHA256_SIZE + 1]);
