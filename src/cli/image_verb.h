#pragma once

/* `glovebox image ...`: argv[0] is "image". Returns the exit status. */
int verb_image(int argc, char **argv);
