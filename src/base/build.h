/* Which build of the program this is: its version and, where the linker left one, the start of its build id. Two
 * processes of one build have the same. */
#pragma once

const char *build_name(void);
