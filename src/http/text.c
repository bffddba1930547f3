#include "http/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static bool is_alphanumeric(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool http_is_token_character(char c) {
        return is_alphanumeric(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

bool http_is_token(const char *text, size_t size) {
        for (size_t i = 0; i < size; i++)
                if (!http_is_token_character(text[i]))
                        return false;
        return size > 0;
}

bool http_is_value(const char *text, size_t size) {
        for (size_t i = 0; i < size; i++) {
                unsigned char c = (unsigned char) text[i];
                if ((c < 0x20 && c != '\t') || c == 0x7f)
                        return false;
        }
        return true;
}

static char to_lower(char c) {
        return c >= 'A' && c <= 'Z' ? (char) (c - 'A' + 'a') : c;
}

bool http_same_sized(const char *a, size_t size, const char *b) {
        for (size_t i = 0; i < size; i++)
                if (b[i] == '\0' || to_lower(a[i]) != to_lower(b[i]))
                        return false;
        return b[size] == '\0';
}

bool http_same(const char *a, const char *b) {
        for (; *a && to_lower(*a) == to_lower(*b); a++, b++)
                ;
        return *a == *b;
}

int http_hex_value(char c) {
        if (c >= '0' && c <= '9')
                return c - '0';
        c = to_lower(c);
        return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int http_decode(const char *text, size_t size, bool plus_is_space, char *ret_text, size_t *ret_size) {
        size_t used = 0;
        for (size_t i = 0; i < size; i++) {
                char c = text[i];
                if (c == '+' && plus_is_space)
                        c = ' ';
                if (c == '%') {
                        int high = size - i > 2 ? http_hex_value(text[i + 1]) : -1;
                        int low = high < 0 ? -1 : http_hex_value(text[i + 2]);
                        if (low < 0)
                                return -EINVAL;
                        c = (char) (high * 16 + low);
                        i += 2;
                }
                if (c == '\0')
                        return -EINVAL;
                ret_text[used++] = c;
        }
        ret_text[used] = '\0';
        *ret_size = used;
        return utf8_is_valid(ret_text, used) ? 0 : -EINVAL;
}

char *http_encode(const char *text, bool keeps_slashes) {
        static const char digits[] = "0123456789ABCDEF";
        char *encoded = malloc(strlen(text) * 3 + 1), *to = encoded;
        for (; encoded && *text; text++) {
                unsigned char c = (unsigned char) *text;
                if (is_alphanumeric(*text) || strchr("-._~", *text) || (c == '/' && keeps_slashes)) {
                        *to++ = *text;
                        continue;
                }
                *to++ = '%';
                *to++ = digits[c >> 4];
                *to++ = digits[c & 15];
        }
        if (encoded)
                *to = '\0';
        return encoded;
}

const char *http_skip_spaces(const char *text) {
        return text + strspn(text, " \t");
}

static int take_quoted(const char **text, char *ret_value, size_t room) {
        const char *at = *text + 1;
        size_t used = 0;
        for (; *at != '"'; at++) {
                if (*at == '\\' && at[1] != '\0')
                        at++;
                if (*at == '\0' || used + 1 >= room)
                        return -EINVAL;
                ret_value[used++] = *at;
        }
        ret_value[used] = '\0';
        *text = at + 1;
        return 0;
}

int http_take_word(const char **text, char *ret_value, size_t room) {
        if (**text == '"')
                return take_quoted(text, ret_value, room);
        size_t size = 0;
        while (http_is_token_character((*text)[size]))
                size++;
        if (size == 0 || size >= room)
                return -EINVAL;
        memcpy(ret_value, *text, size);
        ret_value[size] = '\0';
        *text += size;
        return 0;
}
