#include "session/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

void json_text_release(struct json_text *text) {
        free(text->bytes);
        *text = (struct json_text) { 0 };
}

/* Where the next `size` bytes go, or NULL. */
static char *make_room(struct json_text *text, size_t size) {
        if (text->failed || size > SIZE_MAX / 4 || text->size > SIZE_MAX / 4) {
                text->failed = true;
                return NULL;
        }
        if (text->size + size > text->room) {
                size_t room = text->room ? text->room : 1024;
                while (room < text->size + size)
                        room *= 2;
                char *grown = realloc(text->bytes, room);
                if (!grown) {
                        text->failed = true;
                        return NULL;
                }
                text->bytes = grown;
                text->room = room;
        }
        return text->bytes + text->size;
}

void json_text_put(struct json_text *text, const char *bytes, size_t size) {
        char *to = size > 0 ? make_room(text, size) : NULL;
        if (!to)
                return;
        memcpy(to, bytes, size);
        text->size += size;
}

void json_text_put_number(struct json_text *text, int64_t number) {
        char digits[24];
        size_t at = sizeof(digits);
        uint64_t left = number < 0 ? 0 - (uint64_t) number : (uint64_t) number;
        do
                digits[--at] = (char) ('0' + left % 10);
        while (left /= 10);
        if (number < 0)
                digits[--at] = '-';
        json_text_put(text, digits + at, sizeof(digits) - at);
}

void json_text_put_bool(struct json_text *text, bool value) {
        json_text_put(text, value ? "true" : "false", value ? 4 : 5);
}

static int on_dump(const char *bytes, size_t size, void *context) {
        struct json_text *text = context;
        json_text_put(text, bytes, size);
        return text->failed ? -1 : 0;
}

static void put_escape(struct json_text *text, unsigned char byte) {
        static const char hex[] = "0123456789abcdef";
        static const char short_of[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r' };
        if (byte == '"' || byte == '\\')
                json_text_put(text, (const char[]) { '\\', (char) byte }, 2);
        else if (byte < sizeof(short_of) && short_of[byte])
                json_text_put(text, (const char[]) { '\\', short_of[byte] }, 2);
        else
                json_text_put(text, (const char[]) { '\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15] }, 6);
}

void json_text_put_string(struct json_text *text, const char *bytes, size_t size) {
        _cleanup_free_ char *repaired = NULL;
        if (!utf8_is_valid(bytes, size)) {
                if (utf8_repair(bytes, size, &repaired, &size) < 0) {
                        text->failed = true;
                        return;
                }
                bytes = repaired;
        }
        json_text_put_literal(text, "\"");
        for (size_t at = 0; at < size;) {
                size_t plain = at;
                while (plain < size && (unsigned char) bytes[plain] >= ' ' && bytes[plain] != '"' &&
                       bytes[plain] != '\\')
                        plain++;
                json_text_put(text, bytes + at, plain - at);
                at = plain;
                if (at < size)
                        put_escape(text, (unsigned char) bytes[at++]);
        }
        json_text_put_literal(text, "\"");
}

static void put_object(struct json_text *text, const json_t *object) {
        const char *key;
        json_t *value;
        bool is_first = true;
        json_text_put_literal(text, "{");
        json_object_foreach((json_t *) (uintptr_t) object, key, value) {
                if (!is_first)
                        json_text_put_literal(text, ",");
                is_first = false;
                json_text_put_string(text, key, strlen(key));
                json_text_put_literal(text, ":");
                json_text_put_value(text, value);
        }
        json_text_put_literal(text, "}");
}

/* What runs are made of is written here; the rest is the library's. */
void json_text_put_value(struct json_text *text, const json_t *value) {
        if (!value || json_is_null(value))
                json_text_put_literal(text, "null");
        else if (json_is_string(value))
                json_text_put_string(text, json_string_value(value), json_string_length(value));
        else if (json_is_object(value))
                put_object(text, value);
        else if (json_is_array(value) && json_array_size(value) == 0)
                json_text_put_literal(text, "[]");
        else if (json_dump_callback(value, on_dump, text, JSON_COMPACT | JSON_ENCODE_ANY) < 0)
                text->failed = true;
}
