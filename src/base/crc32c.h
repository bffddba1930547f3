/* CRC-32C (Castagnoli), the checksum of what is read back from a disk. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, which is 0 at first: crc32c(crc32c(0, a), b) is that of a and b together. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);
