#include "base/json_bounds.h"

bool json_is_bounded(const char *json, size_t size) {
        enum { VALUES_MAX = 10000 };
        size_t values = 0;
        bool in_text = false;
        for (size_t i = 0; i < size; i++) {
                if (in_text && json[i] == '\\')
                        i++;
                else if (json[i] == '"')
                        in_text = !in_text;
                else if (!in_text && (json[i] == ',' || json[i] == '[' || json[i] == '{') && ++values > VALUES_MAX)
                        return false;
        }
        return true;
}
