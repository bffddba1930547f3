/* The upstream proxy. */
#include <stdio.h>
#include <string.h>

#include "egress/rules.h"
#include "http/text.h"

enum { CREDENTIALS_MAX = 256 };

/* RFC 4648. `ret_text` has room for 4 characters for each started group of 3 bytes, and a NUL. */
static void encode_base64(const unsigned char *bytes, size_t size, char *ret_text) {
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (size_t i = 0; i < size; i += 3) {
                unsigned group = (unsigned) bytes[i] << 16;
                group |= i + 1 < size ? (unsigned) bytes[i + 1] << 8 : 0;
                group |= i + 2 < size ? bytes[i + 2] : 0;
                *ret_text++ = digits[group >> 18];
                *ret_text++ = digits[group >> 12 & 63];
                *ret_text++ = digits[group >> 6 & 63];
                *ret_text++ = digits[group & 63];
        }
        *ret_text = '\0';
        for (size_t i = size; i % 3; i++)
                ret_text[-(long) (3 - i % 3)] = '=';
}

static bool parse_credentials(const char *text, size_t size, struct egress_upstream *upstream) {
        char plain[CREDENTIALS_MAX + 1];
        size_t plain_size;
        if (size > CREDENTIALS_MAX || http_decode(text, size, false, plain, &plain_size) < 0)
                return false;
        int n = snprintf(upstream->authorization, sizeof(upstream->authorization), "Basic ");
        encode_base64((const unsigned char *) plain, plain_size, upstream->authorization + n);
        return true;
}

/* No message repeats the URL, since it may contain a password. */
int egress_rules_set_upstream(struct egress_rules *rules, const char *url, struct err *err) {
        static const char scheme[] = "http://";
        struct egress_upstream upstream = { .port = 80 };
        const char *rest = strstr(url, "://") ? url : NULL;
        if (rest && !http_same_sized(url, strlen(scheme), scheme))
                return err_set(err, ERR_UNSUPPORTED,
                               "the proxy of the host is not one of http://; boxes cannot use it");
        rest = rest ? url + strlen(scheme) : url;
        size_t size = strcspn(rest, "/");
        const char *at = memrchr(rest, '@', size);
        if (at && !parse_credentials(rest, (size_t) (at - rest), &upstream))
                return err_set(err, ERR_USAGE, "user and password of the host's proxy cannot be read");
        const char *host = at ? at + 1 : rest;
        const char *wrong = egress_authority_parse(host, size - (size_t) (host - rest), &upstream.host, &upstream.port);
        if (wrong || strspn(rest + size, "/") != strlen(rest + size))
                return err_set(err, ERR_USAGE, "the URL of the host's proxy cannot be used: %s",
                               wrong ? wrong : "it has a path");
        rules->upstream = upstream;
        return 0;
}
