#include "base/process_title.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static char *area; /* argv[0]: from there on lie the arguments and, behind them, the environment */
static size_t area_size;
static char **arguments, **environment; /* copies, so that a sanitizer sees that they are in use */

/* The end of the string, if it begins at the end of the last one. */
static char *extend_area(char *end, char *text) {
        return text == end ? text + strlen(text) + 1 : end;
}

/* NULL when there is no memory. It is never freed: the process needs it to its end. */
static char **copy_texts(char **texts) {
        size_t n = 0;
        while (texts[n])
                n++;
        char **copy = calloc(n + 1, sizeof(*copy));
        for (size_t i = 0; copy && i < n; i++)
                if (!(copy[i] = strdup(texts[i])))
                        return NULL;
        return copy;
}

char **process_title_init(int argc, char **argv) {
        if (argc < 1 || !environ)
                return argv;
        char *end = argv[0];
        for (int i = 0; i < argc; i++)
                end = extend_area(end, argv[i]);
        for (char **at = environ; *at; at++)
                end = extend_area(end, *at);
        arguments = copy_texts(argv);
        environment = copy_texts(environ);
        if (!arguments || !environment)
                return argv;
        area = argv[0];
        area_size = (size_t) (end - area);
        environ = environment;
        return arguments;
}

void process_title_erase(const char *secret) {
        size_t size = strlen(secret);
        char *at;
        while (size > 0 && area_size > 0 && (at = memmem(area, area_size, secret, size)))
                explicit_bzero(at, size);
}

void process_title_set(const char *name, const char *detail) {
        char command[16]; /* Linux keeps 15 characters */
        (void) snprintf(command, sizeof(command), "glovebox-%s", name);
        (void) prctl(PR_SET_NAME, command);
        if (area_size == 0)
                return;
        memset(area, 0, area_size);
        (void) snprintf(area, area_size, "glovebox: %s%s%s", name, *detail ? " " : "", detail);
}
