/* The documents of layered archives: which members are the layers, in which order, and the image's configuration. */
#pragma once

#include "image/archive.h"

/* Both fill archive->layers, config and reference from archive->members. */
int manifest_read_docker(struct archive *archive, struct err *err);
int manifest_read_oci(struct archive *archive, struct err *err);
