#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "session/json_plain.h"

enum {
        KEY_MAX = 63,
        ESCAPED_MAX = 16 << 10, /* a longer text that has escapes is for json_loadb */
        DIGITS_MAX = 15,
};

/* What is left to be read. */
struct rest {
        const char *at, *end;
};

static char peek(const struct rest *rest) {
        return rest->at < rest->end ? *rest->at : '\0';
}

static void skip_space(struct rest *rest) {
        while (peek(rest) == ' ' || peek(rest) == '\n' || peek(rest) == '\t' || peek(rest) == '\r')
                rest->at++;
}

static bool skip(struct rest *rest, char byte) {
        skip_space(rest);
        if (peek(rest) != byte)
                return false;
        rest->at++;
        return true;
}

static bool skip_word(struct rest *rest, const char *word) {
        size_t size = strlen(word);
        if ((size_t) (rest->end - rest->at) < size || memcmp(rest->at, word, size) != 0)
                return false;
        rest->at += size;
        return true;
}

static bool read_key(struct rest *rest, char ret_key[static KEY_MAX + 1]) {
        if (!skip(rest, '"'))
                return false;
        size_t size = 0;
        for (char byte; size < KEY_MAX && (((byte = peek(rest)) >= 'a' && byte <= 'z') || byte == '_'); rest->at++)
                ret_key[size++] = byte;
        ret_key[size] = '\0';
        return skip_word(rest, "\"");
}

/* After the opening quote. */
static json_t *read_text(struct rest *rest) {
        static char unescaped[ESCAPED_MAX];
        static const char meant[128] = { ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                         ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t' };
        const char *start = rest->at, *text = start;
        size_t size = 0;
        for (; peek(rest) != '"'; rest->at++) {
                if (rest->at >= rest->end || (unsigned char) *rest->at < ' ')
                        return NULL;
                if (*rest->at == '\\') {
                        if (size >= ESCAPED_MAX)
                                return NULL;
                        if (text != unescaped)
                                text = memcpy(unescaped, start, size);
                        unsigned char escaped = ++rest->at < rest->end ? (unsigned char) *rest->at : 0;
                        if (escaped >= sizeof(meant) || !meant[escaped])
                                return NULL;
                        unescaped[size++] = meant[escaped];
                } else if (text == unescaped) {
                        if (size >= ESCAPED_MAX)
                                return NULL;
                        unescaped[size++] = *rest->at;
                } else
                        size++;
        }
        rest->at++;
        return json_stringn(text, size); /* NULL for what is no UTF-8 */
}

static json_t *read_number(struct rest *rest) {
        const char *start = rest->at;
        json_int_t number = 0;
        for (char byte; (byte = peek(rest)) >= '0' && byte <= '9' && rest->at - start < DIGITS_MAX; rest->at++)
                number = 10 * number + (byte - '0');
        char next = peek(rest);
        bool is_whole = rest->at > start && (*start != '0' || rest->at - start == 1) &&
                        (next == ',' || next == '}' || next == ' ');
        return is_whole ? json_integer(number) : NULL;
}

static json_t *read_value(struct rest *rest) {
        if (skip(rest, '"'))
                return read_text(rest);
        if (skip_word(rest, "true"))
                return json_true();
        if (skip_word(rest, "false"))
                return json_false();
        if (skip_word(rest, "null"))
                return json_null();
        return read_number(rest);
}

static bool read_field(struct rest *rest, json_t *object) {
        char key[KEY_MAX + 1];
        if (!read_key(rest, key) || !skip(rest, ':') || json_object_get(object, key))
                return false;
        json_t *value = read_value(rest);
        return value && json_object_set_new_nocheck(object, key, value) == 0;
}

json_t *json_plain_read(const char *bytes, size_t size) {
        struct rest rest = { bytes, bytes + size };
        json_t *object = skip(&rest, '{') ? json_object() : NULL;
        bool is_good = object != NULL;
        do
                is_good = is_good && read_field(&rest, object);
        while (is_good && skip(&rest, ','));
        if (is_good && skip(&rest, '}')) {
                skip_space(&rest);
                if (rest.at == rest.end)
                        return object;
        }
        json_decref(object);
        return NULL;
}
