/* What an engine says while it builds an image: JSON objects, one on each line, {"stream": …}, {"status": …},
 * {"error": …}, {"message": …}. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { BUILD_WORDS_LINE_MAX = 64 << 10, BUILD_WORDS_TEXT_MAX = 400 };

struct build_words {
        char *line; /* BUILD_WORDS_LINE_MAX bytes; the caller's */
        size_t size;
        bool is_too_long;                       /* the rest of this line is left out */
        char text[BUILD_WORDS_TEXT_MAX + 1];    /* the last thing that it said */
        char trouble[BUILD_WORDS_TEXT_MAX + 1]; /* why it failed; "": it has not */
        void (*report)(void *context, const char *line); /* without control characters; NULL is fine */
        void *context;
};

/* Takes the next bytes; `words` is a struct build_words. */
void build_words_hear(void *words, const char *bytes, size_t size);

/* There are no more: a line without an end counts. */
void build_words_end(struct build_words *words);
