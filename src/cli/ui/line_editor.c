#include "cli/ui/line_editor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/memory.h"
#include "cli/ui/terminal.h"

/* ---- history ---- */

static void line_editor_keep(struct line_editor *editor, const char *line) {
        if (editor->n_history > 0 && strcmp(editor->history[editor->n_history - 1], line) == 0)
                return;
        if (editor->n_history == HISTORY_MAX) {
                free(editor->history[0]);
                memmove(editor->history, editor->history + 1, --editor->n_history * sizeof(char *));
        }
        char **grown = reallocarray(editor->history, editor->n_history + 1, sizeof(char *));
        char *copy = strdup(line);
        if (grown)
                editor->history = grown;
        if (grown && copy)
                grown[editor->n_history++] = copy;
        else
                free(copy);
}

void line_editor_open(struct line_editor *editor, const char *path) {
        char line[LINE_MAX_BYTES];
        (void) snprintf(editor->path, sizeof(editor->path), "%s", path);
        FILE *file = *path ? fopen(path, "re") : NULL;
        while (file && fgets(line, sizeof(line), file)) {
                line[strcspn(line, "\n")] = '\0';
                if (*line)
                        line_editor_keep(editor, line);
        }
        if (file)
                (void) fclose(file);
}

void line_editor_close(struct line_editor *editor) {
        for (size_t i = 0; i < editor->n_history; i++)
                free(editor->history[i]);
        free(editor->history);
        editor->history = NULL;
        editor->n_history = 0;
}

void line_editor_remember(struct line_editor *editor, const char *line) {
        if (!line[strspn(line, " \t")])
                return;
        line_editor_keep(editor, line);
        _cleanup_fd_ int fd =
                *editor->path ? open(editor->path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
        if (fd >= 0)
                (void) dprintf(fd, "%s\n", line);
}

/* ---- the line ---- */

struct edit {
        struct line_editor *editor;
        const char *prompt;
        char text[LINE_MAX_BYTES];
        size_t size, at;  /* bytes; the cursor stands before byte `at` */
        size_t recalled;  /* index into the history; n_history: the new line */
        char *put_aside;  /* the new line, while an old one is shown; owned */
};

static bool is_inner(char byte) {
        return ((unsigned char) byte & 0xc0) == 0x80; /* not the first byte of its character */
}

static size_t before(const struct edit *edit, size_t at) {
        while (at > 0 && is_inner(edit->text[--at]))
                ;
        return at;
}

static size_t after(const struct edit *edit, size_t at) {
        at += at < edit->size;
        while (at < edit->size && is_inner(edit->text[at]))
                at++;
        return at;
}

static size_t characters(const char *text, size_t size) {
        size_t n = 0;
        for (size_t i = 0; i < size; i++)
                n += !is_inner(text[i]);
        return n;
}

/* The part around the cursor that fits into one row. */
static void redraw(const struct edit *edit) {
        size_t width = terminal_width(STDOUT_FILENO, 80), used = characters(edit->prompt, strlen(edit->prompt)) + 1;
        size_t room = width > used + 4 ? width - used : 4, first = 0, last;
        while (characters(edit->text + first, edit->at - first) >= room)
                first = after(edit, first);
        for (last = edit->at; last < edit->size && characters(edit->text + first, last - first) < room;)
                last = after(edit, last);
        (void) printf("\r\033[K%s%.*s", edit->prompt, (int) (last - first), edit->text + first);
        size_t back = characters(edit->text + edit->at, last - edit->at);
        if (back)
                (void) printf("\033[%zuD", back);
        (void) fflush(stdout);
}

static void insert(struct edit *edit, const char *bytes, size_t size) {
        if (edit->size + size >= sizeof(edit->text))
                return;
        memmove(edit->text + edit->at + size, edit->text + edit->at, edit->size - edit->at);
        memcpy(edit->text + edit->at, bytes, size);
        edit->size += size;
        edit->at += size;
}

static void cut(struct edit *edit, size_t from, size_t to) {
        memmove(edit->text + from, edit->text + to, edit->size - to);
        edit->size -= to - from;
        edit->at = from;
}

static void recall(struct edit *edit, bool older) {
        struct line_editor *editor = edit->editor;
        if (older ? edit->recalled == 0 : edit->recalled == editor->n_history)
                return;
        if (edit->recalled == editor->n_history) {
                free(edit->put_aside);
                edit->put_aside = strndup(edit->text, edit->size);
        }
        edit->recalled += older ? (size_t) -1 : 1;
        const char *text = edit->recalled == editor->n_history ? edit->put_aside : editor->history[edit->recalled];
        edit->size = 0;
        edit->at = 0;
        if (text)
                insert(edit, text, strlen(text));
}

static size_t common_size(const char *words) {
        size_t common = strlen(words);
        for (const char *word = words; *word; word += strlen(word) + 1) {
                size_t same = 0;
                while (same < common && word[same] == words[same])
                        same++;
                common = same;
        }
        return common;
}

/* One word is put in; of several, what they have in common, or else all of them are listed. */
static void line_editor_complete(struct edit *edit) {
        size_t size = 0;
        char saved = edit->text[edit->at];
        edit->text[edit->at] = '\0';
        if (edit->at == strspn(edit->text, " \t")) { /* nothing to complete: an indentation */
                edit->text[edit->at] = saved;
                insert(edit, "    ", 4);
                return;
        }
        _cleanup_free_ char *words =
                edit->editor->complete ? edit->editor->complete(edit->editor->context, edit->text, &size) : NULL;
        edit->text[edit->at] = saved;
        if (!words || !*words || size > edit->at)
                return;
        size_t common = common_size(words);
        if (common > size || !words[strlen(words) + 1]) {
                cut(edit, edit->at - size, edit->at);
                insert(edit, words, common);
                return;
        }
        (void) printf("\r\n");
        for (const char *word = words; *word; word += strlen(word) + 1)
                (void) printf("%s  ", word);
        (void) printf("\r\n");
}

static int read_byte(void) {
        unsigned char byte;
        ssize_t n;
        while ((n = read(STDIN_FILENO, &byte, 1)) < 0 && errno == EINTR)
                ;
        return n == 1 ? byte : -1;
}

/* The letter of a key that sends "ESC [ A" or "ESC [ 3 ~"; X is Delete, 0 any other key with a number. */
static int read_escape(void) {
        int first = read_byte(), key = first == '[' || first == 'O' ? read_byte() : first;
        if (key < '0' || key > '9')
                return key;
        int digit = key;
        while (key != '~' && key >= 0)
                key = read_byte();
        static const char letters[] = "0H0XF00HF0"; /* 1 and 7: Home, 4 and 8: End, 3: Delete */
        return letters[digit - '0'];
}

static void take_escape(struct edit *edit) {
        switch (read_escape()) {
        case 'A':
                recall(edit, true);
                break;
        case 'B':
                recall(edit, false);
                break;
        case 'C':
                edit->at = after(edit, edit->at);
                break;
        case 'D':
                edit->at = before(edit, edit->at);
                break;
        case 'H':
                edit->at = 0;
                break;
        case 'F':
                edit->at = edit->size;
                break;
        case 'X':
                cut(edit, edit->at, after(edit, edit->at));
                break;
        default:
                break;
        }
}

static size_t word_before(const struct edit *edit) {
        size_t at = edit->at;
        while (at > 0 && edit->text[at - 1] == ' ')
                at--;
        while (at > 0 && edit->text[at - 1] != ' ')
                at--;
        return at;
}

/* -1: go on. */
static int line_editor_take_key(struct edit *edit, int key) {
        enum { CTRL_A = 1, CTRL_C = 3, CTRL_D, CTRL_E, CTRL_K = 11, CTRL_L, CTRL_U = 21, CTRL_W = 23, ESCAPE = 27 };
        char byte = (char) key;
        switch (key) {
        case -1:
                return LINE_END;
        case '\r':
        case '\n':
                return LINE_READ;
        case CTRL_C:
                return LINE_INTERRUPTED;
        case CTRL_D:
                if (edit->size == 0)
                        return LINE_END;
                cut(edit, edit->at, after(edit, edit->at));
                return -1;
        case CTRL_A:
                edit->at = 0;
                return -1;
        case CTRL_E:
                edit->at = edit->size;
                return -1;
        case CTRL_K:
                edit->size = edit->at;
                return -1;
        case CTRL_U:
                cut(edit, 0, edit->at);
                return -1;
        case CTRL_W:
                cut(edit, word_before(edit), edit->at);
                return -1;
        case CTRL_L:
                (void) printf("\033[H\033[2J");
                return -1;
        case 8:
        case 127:
                if (edit->at > 0)
                        cut(edit, before(edit, edit->at), edit->at);
                return -1;
        case '\t':
                line_editor_complete(edit);
                return -1;
        case ESCAPE:
                take_escape(edit);
                return -1;
        default:
                if (key >= ' ')
                        insert(edit, &byte, 1);
                return -1;
        }
}

static enum line_result read_edited(struct line_editor *editor, const char *prompt, char **ret_line) {
        struct termios normal, raw;
        struct edit *edit = calloc(1, sizeof(*edit));
        if (!edit || tcgetattr(STDIN_FILENO, &normal) < 0) {
                free(edit);
                return LINE_END;
        }
        raw = normal;
        raw.c_lflag &= ~(tcflag_t) (ICANON | ECHO | ISIG | IEXTEN);
        raw.c_iflag &= ~(tcflag_t) (IXON | ICRNL);
        (void) tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
        edit->editor = editor;
        edit->prompt = prompt;
        edit->recalled = editor->n_history;
        int result = -1;
        while (result < 0) {
                redraw(edit);
                result = line_editor_take_key(edit, read_byte());
        }
        edit->at = edit->size;
        redraw(edit);
        (void) printf(result == LINE_INTERRUPTED ? "^C\r\n" : "\r\n");
        (void) fflush(stdout);
        (void) tcsetattr(STDIN_FILENO, TCSADRAIN, &normal);
        if (result == LINE_READ && !(*ret_line = strndup(edit->text, edit->size)))
                result = LINE_END;
        free(edit->put_aside);
        free(edit);
        return (enum line_result) result;
}

enum line_result line_editor_read(struct line_editor *editor, const char *prompt, char **ret_line) {
        if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
                return read_edited(editor, prompt, ret_line);
        char *line = NULL;
        size_t room = 0;
        ssize_t n = getline(&line, &room, stdin);
        if (n < 0) {
                free(line);
                return LINE_END;
        }
        line[strcspn(line, "\n")] = '\0';
        *ret_line = line;
        return LINE_READ;
}
