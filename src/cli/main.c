/* glovebox: one command, verbs as rows of a table (verb_table.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/process_title.h"
#include "cli/ui/terminal.h"
#include "cli/verb.h"
#include "egress/egress.h"
#include "engine/instance_link.h"
#include "engine/remote_tunnel.h"
#include "engine/stdio_channel.h"

/* A caller that closed 0, 1 or 2 would have the next open() take that number, and output or input would go to the
 * wrong file. */
static int fill_standard_descriptors(struct err *err) {
        for (int fd = 0; fd <= STDERR_FILENO; fd++) {
                if (fcntl(fd, F_GETFD) >= 0)
                        continue;
                if (open("/dev/null", O_RDWR) != fd)
                        return err_sys(err, errno, "cannot open /dev/null in place of a closed descriptor");
        }
        return 0;
}

static int dispatch(int argc, char **argv) {
        if (argc < 2) {
                verb_print_overview(stderr);
                return err_code_exit_status(ERR_USAGE);
        }
        const char *word = argv[1];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
                verb_print_overview(stdout);
                return 0;
        }
        if (strcmp(word, "--version") == 0) {
                (void) printf("glovebox %s\n", GLOVEBOX_VERSION);
                return 0;
        }
        if (word[0] == '-') {
                struct err err;
                if (strcmp(word, "-c") == 0 || strcmp(word, "-m") == 0)
                        (void) err_set(&err, ERR_USAGE, "%s needs a verb before it; write: glovebox run %s …", word,
                                       word);
                else if (argc > 2 && verb_find(argv[2]))
                        (void) err_set(&err, ERR_USAGE, "options follow the verb; write: glovebox %s %.60s …", argv[2],
                                       word);
                else
                        (void) err_set(&err, ERR_USAGE,
                                       "unknown option %.60s before a verb; \"glovebox --help\" lists the verbs", word);
                return terminal_fail(&err);
        }
        const struct verb *verb = verb_find(word);
        return verb ? verb->run(argc - 1, argv + 1) : verb_fail_unknown(word);
}

int main(int argc, char **argv) {
        struct err err;
        egress_serve_if_asked(argc, argv);
        remote_tunnel_serve_if_asked(argc, argv);
        instance_link_serve_if_asked(argc, argv);
        stdio_channel_serve_if_asked(argc, argv);
        argv = process_title_init(argc, argv);
        if (fill_standard_descriptors(&err) < 0)
                return terminal_fail(&err);
        int status = dispatch(argc, argv);
        /* Output that could not be written (a full disk) must not look like success. */
        if ((fflush(stdout) != 0 || ferror(stdout)) && status == 0) {
                (void) err_sys(&err, errno, "cannot write to standard output");
                return terminal_fail(&err);
        }
        return status;
}
