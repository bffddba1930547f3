#include "session/held_back.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"

static const struct {
        const char *name;
        size_t max; /* bytes */
        bool is_brief;
} fields[] = { { "context", 64, true }, { "name", 100, true }, { "type", 100, false }, { "why", 300, false } };

/* Between two characters. */
static json_t *clip_text(const json_t *text, size_t max) {
        const char *bytes = json_string_value(text);
        size_t size = bytes ? strlen(bytes) : 0;
        if (size > max)
                for (size = max; size > 0 && ((unsigned char) bytes[size] & 0xc0) == 0x80; size--)
                        ;
        return json_stringn(bytes ? bytes : "", size);
}

static json_t *held_back_copy(const json_t *answer, size_t n_max, bool is_brief) {
        json_t *array = json_array(), *one;
        size_t i;
        json_array_foreach (answer, i, one) {
                if (i == n_max)
                        break;
                json_t *entry = json_object();
                for (size_t field = 0; field < ELEMENTS(fields); field++)
                        if (!is_brief || fields[field].is_brief)
                                json_object_set_new(
                                        entry, fields[field].name,
                                        clip_text(json_object_get(one, fields[field].name), fields[field].max));
                json_array_append_new(array, entry);
        }
        return array;
}

json_t *held_back_of(const json_t *answer) {
        return json_array_size(answer) > 0 ? held_back_copy(answer, HELD_BACK_MAX, false) : NULL;
}

json_t *held_back_brief(const json_t *held_back) {
        return held_back_copy(held_back, HELD_BACK_BRIEF, true);
}
