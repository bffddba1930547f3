/* The query of a URL, decoded: "path=a%20b&all" has path = "a b" and all = "". */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "http/limits.h"

struct http_pair {
        const char *name, *value;
};

struct http_pairs {
        char *bytes;
        struct http_pair pairs[HTTP_QUERY_PAIRS_MAX];
        size_t n;
};

/* NULL is an empty one. Refused: broken escapes, NUL, what is not UTF-8, a name that is empty or comes twice. */
int http_query_parse(const char *query, struct http_pairs *ret_pairs, struct err *err);
void http_query_free(struct http_pairs *pairs);

/* NULL: not there. */
const char *http_query_find(const struct http_pairs *pairs, const char *name);
