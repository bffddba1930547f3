/* CRC-32C (Castagnoli), the checksum of data that is read back from a disk. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, which is 0 at first: crc32c(crc32c(0, a), b) is the checksum of a and b together. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t size);
