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

/* "bytes=FIRST-LAST" with one of them or both. False: anything else, which RFC 9110 lets a server ignore. */
static bool read_positions(const char *range, bool *ret_has_first, uint64_t *ret_first, uint64_t *ret_last) {
        const char *at = range + strcspn(range, "=");
        if (!http_same_sized(range, (size_t) (at - range), "bytes") || *at++ != '=')
                return false;
        *ret_has_first = take_number(&at, ret_first);
        if (*at++ != '-')
                return false;
        bool has_last = take_number(&at, ret_last);
        return *at == '\0' && (*ret_has_first || has_last) && (!*ret_has_first || *ret_first <= *ret_last);
}

enum http_range_kind http_range_parse(const char *range, uint64_t size, uint64_t *ret_first, uint64_t *ret_length) {
        uint64_t first = 0, last = UINT64_MAX;
        bool has_first;
        if (!range || !read_positions(range, &has_first, &first, &last))
                return HTTP_RANGE_ALL;
        if (!has_first) { /* "-N": the last N bytes */
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
