#include "http/range.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "http/limits.h"
#include "http/text.h"

/* A number at *at, which is moved behind it. False: none, or too long. */
static bool take_number(const char **at, uint64_t *ret_number) {
        size_t n = strspn(*at, "0123456789");
        if (n == 0 || n > HTTP_LENGTH_DIGITS_MAX)
                return false;
        *ret_number = strtoull(*at, NULL, 10);
        *at += n;
        return true;
}

enum http_range_kind http_range_parse(const char *range, uint64_t size, uint64_t *ret_first, uint64_t *ret_length) {
        uint64_t first = 0, last = UINT64_MAX;
        if (!range || !http_same_sized(range, strcspn(range, "="), "bytes"))
                return HTTP_RANGE_ALL;
        const char *at = range + strcspn(range, "=");
        if (*at++ != '=')
                return HTTP_RANGE_ALL;
        bool has_first = take_number(&at, &first);
        if (*at++ != '-')
                return HTTP_RANGE_ALL;
        bool has_last = take_number(&at, &last);
        if (*at != '\0' || (!has_first && !has_last) || (has_first && last < first))
                return HTTP_RANGE_ALL;
        if (!has_first) { /* the last so many */
                if (last == 0 || size == 0)
                        return HTTP_RANGE_NONE;
                first = last < size ? size - last : 0;
                last = size - 1;
        }
        if (first >= size)
                return HTTP_RANGE_NONE;
        if (last >= size)
                last = size - 1;
        *ret_first = first;
        *ret_length = last - first + 1;
        return HTTP_RANGE_PART;
}
