#include "http/media.h"

#include <string.h>

#include "http/text.h"

/* One ";name=value" at *at, which is moved behind it. False: there is none, or it is malformed. */
static bool take_parameter(const char **at, char name[static 64], char value[static 128]) {
        const char *next = http_skip_spaces(*at);
        if (*next != ';')
                return false;
        next = http_skip_spaces(next + 1);
        if (*next == '"' || http_take_word(&next, name, 64) < 0 || *next++ != '=' ||
            http_take_word(&next, value, 128) < 0)
                return false;
        *at = next;
        return true;
}

static size_t type_size(const char *text) {
        return strcspn(text, "; \t,");
}

bool http_type_is(const char *content_type, const char *type) {
        if (!content_type || !http_same_sized(content_type, type_size(content_type), type))
                return false;
        const char *at = content_type + type_size(content_type);
        char name[64], value[128];
        while (take_parameter(&at, name, value))
                if (http_same(name, "charset") && !http_same(value, "utf-8"))
                        return false;
        return *http_skip_spaces(at) == '\0';
}

/* "1", "0.5", "0.125": in thousandths; -1: malformed. */
static int parse_quality(const char *text) {
        if ((*text != '0' && *text != '1') || (text[1] != '\0' && text[1] != '.'))
                return -1;
        int quality = (*text - '0') * 1000, unit = 100;
        if (text[1] == '.')
                for (text += 2; *text; text++, unit /= 10) {
                        if (*text < '0' || *text > '9' || unit == 0)
                                return -1;
                        quality += (*text - '0') * unit;
                }
        return quality <= 1000 ? quality : -1;
}

/* 3: the very type; 2: its major type with a star; 1: two stars; 0: another type. */
static int specificity(const char *range, size_t size, const char *type) {
        size_t major = strcspn(type, "/") + 1;
        if (http_same_sized(range, size, type))
                return 3;
        if (http_same_sized(range, size, "*/*"))
                return 1;
        if (size != major + 1 || range[major] != '*')
                return 0;
        for (size_t i = 0; i < major; i++)
                if (!http_same_sized(range + i, 1, (char[]) { type[i], '\0' }))
                        return 0;
        return 2;
}

int http_accept_quality(const char *accept, const char *type) {
        if (!accept)
                return 1000;
        int best = 0, best_quality = 0;
        while (*(accept = accept + strspn(accept, " \t,"))) {
                const char *range = accept;
                size_t size = type_size(range);
                int quality = 1000;
                char name[64], value[128];
                accept += size;
                while (take_parameter(&accept, name, value))
                        if (http_same(name, "q"))
                                quality = parse_quality(value);
                bool is_whole = *http_skip_spaces(accept) == ',' || *http_skip_spaces(accept) == '\0';
                int specific = specificity(range, size, type);
                if (is_whole && quality >= 0 && specific > best) {
                        best = specific;
                        best_quality = quality;
                }
                accept += strcspn(accept, ",");
        }
        return best_quality;
}
