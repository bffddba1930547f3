/* Random ids that cannot be guessed: of runs, of offered inputs, of questions to a kernel. */
#pragma once

enum { RANDOM_ID_SIZE = 33 }; /* 32 hexadecimal digits and the terminator */

/* 0, or -EIO. */
int random_id_make(char ret_id[static RANDOM_ID_SIZE]);
