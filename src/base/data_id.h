/* The id of a data directory: what its boxes are known by on this host, whatever the directory is called. */
#pragma once

#include "base/err.h"

enum { DATA_ID_SIZE = 12 }; /* hexadecimal digits */

/* Reads <data_dir>/id, which is made once. A directory that was copied gets another id than its original. The caller
 * holds the registry's lock. */
int data_id_get(const char *data_dir, char ret_id[static DATA_ID_SIZE + 1], struct err *err);
