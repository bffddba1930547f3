#include "engine/build_words.h"

#include <jansson.h>
#include <string.h>

#include "base/memory.h"

static void keep_text(char to[static BUILD_WORDS_TEXT_MAX + 1], const char *text) {
        size_t n = 0;
        text += strspn(text, " \r\n\t");
        for (; *text && n < BUILD_WORDS_TEXT_MAX; text++) /* the text may be shown on a terminal */
                to[n++] = (unsigned char) *text < ' ' || *text == 127 ? ' ' : *text;
        while (n > 0 && to[n - 1] == ' ')
                n--;
        to[n] = '\0';
}

static void hear_line(struct build_words *words) {
        json_t *said = json_loadb(words->line, words->size, 0, NULL);
        static const char *const failed[] = { "error", "message", "cause" }, *const plain[] = { "stream", "status" };
        for (size_t i = 0; i < ELEMENTS(failed) && !*words->trouble; i++) {
                const char *text = json_string_value(json_object_get(said, failed[i]));
                if (text)
                        keep_text(words->trouble, text);
        }
        for (size_t i = 0; i < ELEMENTS(plain); i++) {
                const char *text = json_string_value(json_object_get(said, plain[i]));
                if (!text || !text[strspn(text, " \r\n\t")])
                        continue;
                keep_text(words->text, text);
                if (words->report)
                        words->report(words->context, words->text);
        }
        json_decref(said);
}

void build_words_hear(void *context, const char *bytes, size_t size) {
        struct build_words *words = context;
        for (size_t i = 0; i < size; i++) {
                if (bytes[i] != '\n') {
                        words->is_too_long |= words->size == BUILD_WORDS_LINE_MAX;
                        if (!words->is_too_long)
                                words->line[words->size++] = bytes[i];
                        continue;
                }
                build_words_end(words);
        }
}

void build_words_end(struct build_words *words) {
        if (!words->is_too_long && words->size > 0)
                hear_line(words);
        words->size = 0;
        words->is_too_long = false;
}
