#include "cli/ui/inline_image.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/ui/sixel.h"

enum { KITTY_CHUNK = 4096 };

static const char *inline_image_variable(const char *name) {
        const char *value = getenv(name);
        return value ? value : "";
}

static enum inline_image_kind kind_of_terminal(void) {
        static const struct {
                const char *variable, *value; /* value "": that it is set is enough */
                enum inline_image_kind kind;
        } known[] = {
                { "KITTY_WINDOW_ID", "", INLINE_IMAGE_KITTY },
                { "TERM", "xterm-kitty", INLINE_IMAGE_KITTY },
                { "TERM", "xterm-ghostty", INLINE_IMAGE_KITTY },
                { "TERM_PROGRAM", "ghostty", INLINE_IMAGE_KITTY },
                { "TERM_PROGRAM", "iTerm.app", INLINE_IMAGE_ITERM },
                { "LC_TERMINAL", "iTerm2", INLINE_IMAGE_ITERM },
                { "TERM_PROGRAM", "WezTerm", INLINE_IMAGE_ITERM },
                { "TERM_PROGRAM", "vscode", INLINE_IMAGE_ITERM },
                { "TERM", "foot", INLINE_IMAGE_SIXEL },
                { "TERM", "foot-extra", INLINE_IMAGE_SIXEL },
                { "TERM", "mlterm", INLINE_IMAGE_SIXEL },
                { "TERM", "xterm-sixel", INLINE_IMAGE_SIXEL },
        };
        if (*inline_image_variable("TMUX") || strncmp(inline_image_variable("TERM"), "screen", 6) == 0)
                return INLINE_IMAGE_NONE; /* what is in between would not pass it on */
        for (size_t i = 0; i < ELEMENTS(known); i++) {
                const char *value = inline_image_variable(known[i].variable);
                if (*value && (!*known[i].value || strcmp(value, known[i].value) == 0))
                        return known[i].kind;
        }
        return INLINE_IMAGE_NONE;
}

enum inline_image_kind inline_image_choose(void) {
        static const char *const names[] = { "none", "kitty", "iterm", "sixel" };
        const char *asked = inline_image_variable("GLOVEBOX_FIGURES");
        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (strcmp(asked, names[i]) == 0)
                        return (enum inline_image_kind) i;
        return isatty(STDOUT_FILENO) ? kind_of_terminal() : INLINE_IMAGE_NONE;
}

static bool is_base64(const char *text) {
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        size_t size = strspn(text, letters);
        return size > 0 && (size + strspn(text + size, "=")) % 4 == 0 && strspn(text + size, "=") <= 2 &&
               text[size + strspn(text + size, "=")] == '\0';
}

static uint8_t *decode(const char *text, size_t *ret_size) {
        uint8_t *bytes = malloc(strlen(text) / 4 * 3 + 3);
        size_t n = 0;
        uint32_t bits = 0;
        for (unsigned i = 0; bytes && text[i] && text[i] != '='; i++) {
                char c = text[i];
                unsigned value = c >= 'A' && c <= 'Z'   ? (unsigned) (c - 'A')
                                 : c >= 'a' && c <= 'z' ? (unsigned) (c - 'a') + 26
                                 : c >= '0' && c <= '9' ? (unsigned) (c - '0') + 52
                                 : c == '+'             ? 62u
                                                        : 63u;
                bits = (bits << 6 | value) & 0xffffff;
                if (i % 4 == 1)
                        bytes[n++] = (uint8_t) (bits >> 4);
                else if (i % 4 == 2)
                        bytes[n++] = (uint8_t) (bits >> 2);
                else if (i % 4 == 3)
                        bytes[n++] = (uint8_t) bits;
        }
        *ret_size = n;
        return bytes;
}

static void put_kitty(FILE *file, const char *base64) {
        size_t left = strlen(base64);
        for (bool first = true; left > 0; first = false) {
                size_t size = left < KITTY_CHUNK ? left : KITTY_CHUNK;
                left -= size;
                (void) fprintf(file, "\033_G%sm=%d;%.*s\033\\", first ? "a=T,f=100," : "", left > 0, (int) size,
                               base64);
                base64 += size;
        }
        (void) fputc('\n', file);
}

char *inline_image_make(enum inline_image_kind kind, const char *base64) {
        char *text = NULL;
        size_t size = 0;
        if (kind == INLINE_IMAGE_NONE || !base64 || !is_base64(base64))
                return NULL;
        _cleanup_free_ uint8_t *png = kind == INLINE_IMAGE_SIXEL ? decode(base64, &size) : NULL;
        _cleanup_free_ char *sixels = png ? sixel_from_png(png, size) : NULL;
        if (kind == INLINE_IMAGE_SIXEL && !sixels)
                return NULL;
        FILE *file = open_memstream(&text, &size);
        if (!file)
                return NULL;
        if (kind == INLINE_IMAGE_KITTY)
                put_kitty(file, base64);
        else if (kind == INLINE_IMAGE_ITERM)
                (void) fprintf(file, "\033]1337;File=inline=1;size=%zu:%s\a\n", strlen(base64) / 4 * 3, base64);
        else
                (void) fprintf(file, "%s\n", sixels);
        if (fclose(file) == 0)
                return text;
        free(text);
        return NULL;
}
