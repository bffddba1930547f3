#include "http/query.h"

#include <stdlib.h>
#include <string.h>

#include "http/text.h"

/* Decodes one "name=value" to the end of what is decoded already. */
static int take_pair(struct http_pairs *pairs, size_t *used, const char *text, size_t size, struct err *err) {
        const char *equals = memchr(text, '=', size);
        size_t name_size = equals ? (size_t) (equals - text) : size, value_size = equals ? size - name_size - 1 : 0;
        if (pairs->n == HTTP_QUERY_PAIRS_MAX)
                return err_set(err, ERR_USAGE, "the query has more than %d parameters", HTTP_QUERY_PAIRS_MAX);
        char *name = pairs->bytes + *used;
        size_t n;
        if (http_decode(text, name_size, true, name, &n) < 0 || n == 0)
                return err_set(err, ERR_USAGE,
                               "a parameter of the query has no name, or one that is not "
                               "percent-encoded UTF-8; encode it as curl --data-urlencode does");
        *used += n + 1;
        char *value = pairs->bytes + *used;
        if (http_decode(equals ? equals + 1 : "", value_size, true, value, &n) < 0)
                return err_set(err, ERR_USAGE,
                               "the query's parameter %s is not percent-encoded UTF-8; encode it as "
                               "curl --data-urlencode does",
                               name);
        *used += n + 1;
        if (http_query_find(pairs, name))
                return err_set(err, ERR_USAGE, "the query's parameter %s occurs twice; give it once", name);
        pairs->pairs[pairs->n++] = (struct http_pair) { name, value };
        return 0;
}

int http_query_parse(const char *query, struct http_pairs *ret_pairs, struct err *err) {
        struct http_pairs pairs = { 0 };
        if (!query)
                query = "";
        pairs.bytes = malloc(strlen(query) * 2 + 2); /* each pair, one byte or more, gets two NULs: "a&b" */
        if (!pairs.bytes)
                return err_set(err, ERR_SYSTEM, "out of memory");
        size_t used = 0;
        while (*query) {
                size_t size = strcspn(query, "&");
                if (size > 0 && take_pair(&pairs, &used, query, size, err) < 0) {
                        http_query_free(&pairs);
                        return -1;
                }
                query += size + (query[size] == '&');
        }
        *ret_pairs = pairs;
        return 0;
}

void http_query_free(struct http_pairs *pairs) {
        free(pairs->bytes);
        *pairs = (struct http_pairs) { 0 };
}

const char *http_query_find(const struct http_pairs *pairs, const char *name) {
        for (size_t i = 0; i < pairs->n; i++)
                if (strcmp(pairs->pairs[i].name, name) == 0)
                        return pairs->pairs[i].value;
        return NULL;
}
