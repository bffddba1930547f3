#include "cli/source_text.h"

#include <ctype.h>
#include <iconv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum {
        CODING_NAME_MAX = 32,
        GROWTH = 4, /* bytes of UTF-8 that one byte of another encoding can become */
};

/* "coding" then ":" or "=" then the name. */
static bool find_coding_in_comment(const char *at, const char *stop, char ret_name[static CODING_NAME_MAX]) {
        while (at + 7 < stop && (strncmp(at, "coding", 6) != 0 || (at[6] != ':' && at[6] != '=')))
                at++;
        if (at + 7 >= stop)
                return false;
        at += 7;
        while (at < stop && (*at == ' ' || *at == '\t'))
                at++;
        size_t n = 0;
        while (at < stop && n < CODING_NAME_MAX - 1 && (isalnum((unsigned char) *at) || strchr("-_.", *at)))
                ret_name[n++] = *at++;
        ret_name[n] = '\0';
        return n > 0;
}

/* PEP 263: in a comment on one of the first two lines. */
static bool find_coding(const char *code, size_t size, char ret_name[static CODING_NAME_MAX]) {
        const char *end = code + size;
        for (int line = 0; line < 2 && code < end; line++) {
                const char *stop = memchr(code, '\n', (size_t) (end - code));
                stop = stop ? stop : end;
                const char *at = code;
                while (at < stop && (*at == ' ' || *at == '\t' || *at == '\f'))
                        at++;
                bool is_comment = at < stop && *at == '#', is_blank = at == stop || *at == '\r';
                if (is_comment && find_coding_in_comment(at, stop, ret_name))
                        return true;
                if (!is_comment && !is_blank)
                        return false;
                code = stop + 1;
        }
        return false;
}

static bool is_utf8(const char *name) {
        return strncasecmp(name, "utf-8", 5) == 0 || strncasecmp(name, "utf8", 4) == 0 ||
               strncasecmp(name, "utf_8", 5) == 0;
}

static int convert(struct run_request *request, const char *name, struct err *err) {
        char known[40];
        (void) snprintf(known, sizeof(known), "%s", strcasecmp(name, "latin-1") == 0 ? "ISO-8859-1" : name);
        for (char *at = known; *at; at++)
                if (*at == '_')
                        *at = '-';
        iconv_t converter = iconv_open("UTF-8", known);
        if (converter == (iconv_t) -1)
                return err_set(err, ERR_USAGE,
                               "%.200s has the coding line \"%s\", which is not known here; save it as UTF-8",
                               request->code_name, name);
        size_t room = request->code_size * GROWTH + 1, left_in = request->code_size, left_out = room - 1;
        _cleanup_free_ char *text = malloc(room);
        char *in = (char *) (uintptr_t) request->code, *out = text;
        size_t result = text ? iconv(converter, &in, &left_in, &out, &left_out) : (size_t) -1;
        (void) iconv_close(converter);
        if (result == (size_t) -1)
                return err_set(err, ERR_USAGE,
                               "%.200s is not the %s that its coding line says, at byte %zu; save it as UTF-8",
                               request->code_name, name, request->code_size - left_in);
        *out = '\0';
        free(request->owned_code);
        request->code_size = (size_t) (out - text);
        request->owned_code = take_ptr(text);
        request->code = request->owned_code;
        return 0;
}

int source_text_decode(struct run_request *request, struct err *err) {
        char name[32];
        if (request->code_size >= 3 && memcmp(request->code, "\xef\xbb\xbf", 3) == 0) {
                request->code += 3;
                request->code_size -= 3;
                return 0;
        }
        if (!request->owned_code || !find_coding(request->code, request->code_size, name) || is_utf8(name))
                return 0;
        return convert(request, name, err);
}
