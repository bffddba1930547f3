/* Which build of the program this is: its version and, where the linker left one, the start of its build id. All
 * processes of one build have the same one. */
#pragma once

const char *build_name(void);
