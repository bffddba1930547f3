#include "base/random_id.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>

int random_id_make(char ret_id[static RANDOM_ID_SIZE]) {
        uint64_t random[2];
        if (getrandom(random, sizeof(random), 0) != sizeof(random))
                return -EIO;
        (void) snprintf(ret_id, RANDOM_ID_SIZE, "%016llx%016llx", (unsigned long long) random[0],
                        (unsigned long long) random[1]);
        return 0;
}
