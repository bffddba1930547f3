/* Operations on files of a session's workspace. */
#include "session/operation.h"

#include <stddef.h>

const struct operation operations_file[] = { { NULL, NULL } };
