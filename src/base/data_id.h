/* The id of a data directory. It is part of the names of its boxes' control groups, whatever the directory is
 * called. */
#pragma once

#include "base/err.h"

enum { DATA_ID_SIZE = 12 }; /* hexadecimal digits */

/* Reads <data_dir>/id, and creates it if it is missing. A directory that was copied gets another id than its original.
 * The caller holds the registry's lock. */
int data_id_get(const char *data_dir, char ret_id[static DATA_ID_SIZE + 1], struct err *err);
