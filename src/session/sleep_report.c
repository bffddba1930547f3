#include "session/sleep_report.h"

#include <stdbool.h>
#include <string.h>

#include "base/memory.h"

enum { ENTRIES_MAX = 100, TEXT_MAX = 300 };

/* At most TEXT_MAX bytes, and no half character. */
static json_t *short_text(const json_t *value) {
        const char *text = json_string_value(value);
        size_t size = json_string_length(value);
        if (!text || size <= TEXT_MAX)
                return json_incref((json_t *) (uintptr_t) value);
        size = TEXT_MAX;
        while (size > 0 && ((unsigned char) text[size] & 0xc0) == 0x80)
                size--;
        return json_stringn(text, size);
}

static void copy_list(json_t *report, const json_t *answer, const char *key) {
        const json_t *list = json_object_get(answer, key);
        size_t n = json_array_size(list);
        if (n == 0)
                return;
        json_t *copy = json_array();
        for (size_t i = 0; i < n && i < ENTRIES_MAX; i++)
                if (json_is_string(json_array_get(list, i)))
                        json_array_append_new(copy, short_text(json_array_get(list, i)));
        if (n > ENTRIES_MAX)
                json_array_append_new(copy, json_sprintf("and %zu more", n - ENTRIES_MAX));
        json_object_set_new(report, key, copy);
}

json_t *sleep_report(const json_t *answer) {
        static const char *const keys[] = { "not_carried", "damaged", "lost", "files_lost" };
        json_t *report = json_object();
        for (size_t i = 0; i < ELEMENTS(keys); i++)
                copy_list(report, answer, keys[i]);
        const json_t *error = json_object_get(answer, "error");
        if (json_is_string(error))
                json_object_set_new(report, "error", short_text(error));
        return report;
}

void sleep_error(const char *session, const json_t *answer, struct err *ret_err) {
        const char *name = json_string_value(json_object_get(answer, "errno"));
        const char *why = json_string_value(json_object_get(answer, "error"));
        bool is_full = name && (strcmp(name, "ENOSPC") == 0 || strcmp(name, "EDQUOT") == 0);
        if (is_full)
                (void) err_set(ret_err, ERR_NO_SPACE,
                               "session %s stays awake: there is no room on the disk for its variables; free some "
                               "space and try again",
                               session);
        else
                (void) err_set(ret_err, ERR_SYSTEM, "session %s stays awake: %.300s", session,
                               why ? why : "its kernel gave no reason");
}
