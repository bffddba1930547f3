/* Contents of an OCI archive are named by their SHA-256. If the digest differs, the content is damaged or was
 * changed. */
#pragma once

#include "image/archive.h"

/* Reads the whole member when its name is "blobs/sha256/HEX" and compares. Other names pass; other kinds of digest are
 * refused. */
int digest_check(const struct archive *archive, const struct archive_member *member, const char *name, struct err *err);
