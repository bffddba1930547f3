#include "mcp/slice.h"

#include <stdlib.h>
#include <string.h>

static bool is_space(char c) {
        return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t skip_spaces(struct slice whole, size_t at) {
        while (at < whole.size && is_space(whole.bytes[at]))
                at++;
        return at;
}

/* Behind the string that begins at `at`. */
static size_t skip_string(struct slice whole, size_t at) {
        for (at++; at < whole.size; at++) {
                const char *quote = memchr(whole.bytes + at, '"', whole.size - at);
                const char *escape = memchr(whole.bytes + at, '\\', quote ? (size_t) (quote - whole.bytes) - at : 0);
                if (!quote)
                        return whole.size;
                if (!escape)
                        return (size_t) (quote - whole.bytes) + 1;
                at = (size_t) (escape - whole.bytes) + 1; /* the loop skips escaped bytes */
        }
        return whole.size;
}

/* Behind the value that begins at `at`. */
static size_t skip_value(struct slice whole, size_t at) {
        size_t depth = 0;
        while (at < whole.size) {
                char c = whole.bytes[at];
                if (c == '"')
                        at = skip_string(whole, at);
                else if (c == '{' || c == '[') {
                        depth++;
                        at++;
                } else if (c == '}' || c == ']') {
                        if (depth == 0)
                                return at;
                        depth--;
                        at++;
                } else if (depth == 0 && (c == ',' || c == ':' || is_space(c)))
                        return at;
                else {
                        at++;
                        continue;
                }
                if (depth == 0)
                        return at;
        }
        return at;
}

/* The key of a member at *at, which is moved behind the colon. */
static bool slice_take_key(struct slice whole, size_t *at, struct slice *ret_key) {
        size_t begin = *at;
        if (whole.bytes[begin] != '"')
                return false;
        size_t end = skip_string(whole, begin);
        if (ret_key)
                *ret_key = (struct slice) { whole.bytes + begin + 1, end - begin - 2 };
        end = skip_spaces(whole, end);
        if (end >= whole.size || whole.bytes[end] != ':')
                return false;
        *at = skip_spaces(whole, end + 1);
        return true;
}

bool slice_next(struct slice whole, size_t *at, struct slice *ret_key, struct slice *ret_value) {
        if (!whole.bytes || whole.size < 2 || (whole.bytes[0] != '{' && whole.bytes[0] != '['))
                return false;
        size_t i = skip_spaces(whole, *at ? *at : 1);
        if (i < whole.size && whole.bytes[i] == ',')
                i = skip_spaces(whole, i + 1);
        if (i >= whole.size || whole.bytes[i] == '}' || whole.bytes[i] == ']')
                return false;
        if (whole.bytes[0] == '{' && !slice_take_key(whole, &i, ret_key))
                return false;
        size_t end = skip_value(whole, i);
        if (end <= i)
                return false;
        *ret_value = (struct slice) { whole.bytes + i, end - i };
        *at = end;
        return true;
}

struct slice slice_get(struct slice object, const char *key) {
        struct slice name, value;
        if (!object.bytes || !object.size || object.bytes[0] != '{')
                return (struct slice) { 0 };
        for (size_t at = 0; slice_next(object, &at, &name, &value);)
                if (name.size == strlen(key) && memcmp(name.bytes, key, name.size) == 0)
                        return value;
        return (struct slice) { 0 };
}

bool slice_is(struct slice value, const char *text) {
        size_t size = strlen(text);
        return value.bytes && value.size == size + 2 && value.bytes[0] == '"' &&
               memcmp(value.bytes + 1, text, size) == 0;
}

bool slice_is_true(struct slice value) {
        return value.bytes && value.size == 4 && memcmp(value.bytes, "true", 4) == 0;
}

int64_t slice_number(struct slice value) {
        char text[24];
        if (!value.bytes || value.size >= sizeof(text))
                return 0;
        memcpy(text, value.bytes, value.size);
        text[value.size] = '\0';
        return strtoll(text, NULL, 10);
}

char *slice_text(struct slice value, size_t max) {
        if (!value.bytes || value.size > max || value.bytes[0] != '"')
                return NULL;
        json_t *json = json_loadb(value.bytes, value.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        size_t size = json_string_length(json);
        char *text = json ? malloc(size + 1) : NULL;
        if (text) {
                memcpy(text, json_string_value(json), size + 1);
                for (size_t i = 0; i < size; i++) /* ours is a C text */
                        if (!text[i])
                                text[i] = ' ';
        }
        json_decref(json);
        return text;
}
