/* One line from a person at a terminal: edited, with a history and completion. Where there is no terminal, a line as it
 * comes. */
#pragma once

#include <stddef.h>

enum { LINE_MAX_BYTES = 64 << 10, HISTORY_MAX = 1000 };

struct line_editor {
        char **history; /* owned, oldest first */
        size_t n_history;
        char path[4200]; /* where the history is kept, or "" */

        /* Words that may stand where the last `*ret_size` bytes of `text` do, each with its NUL, "" ends them; NULL:
         * none. The caller frees them. */
        char *(*complete)(void *context, const char *text, size_t *ret_size);
        void *context;
};

/* Reads the history of this file, which need not exist. */
void line_editor_open(struct line_editor *editor, const char *path);
void line_editor_close(struct line_editor *editor);

enum line_result { LINE_READ, LINE_INTERRUPTED, LINE_END };

/* A new line without its end, in *ret_line, to be freed; with LINE_READ only. */
enum line_result line_editor_read(struct line_editor *editor, const char *prompt, char **ret_line);

/* Remembers it, and appends it to the file. */
void line_editor_remember(struct line_editor *editor, const char *line);
