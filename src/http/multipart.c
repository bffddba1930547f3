#include "http/multipart.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"
#include "http/limits.h"
#include "http/text.h"

enum step {
        STEP_DATA,
        STEP_AFTER,
        STEP_AFTER_LF,
        STEP_HEAD,
        STEP_CLOSING,
        STEP_END,
        STEP_END_LF,
        STEP_OVER,
        STEP_FAILED
};

struct multipart {
        const struct multipart_events *events;
        void *context;
        enum step step;
        bool in_part; /* false: what stands before the first boundary */
        unsigned n_parts;
        char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CR LF - - boundary */
        size_t delimiter_size;
        size_t matched;  /* how much of the delimiter the bytes before this one were */
        size_t imagined; /* so much of that was never sent: the line break before the first boundary */
        char head[MULTIPART_HEAD_MAX + 1];
        size_t head_size;
        char name[MULTIPART_NAME_MAX + 1], file_name[MULTIPART_NAME_MAX + 1], type[256];
        bool has_name, has_file_name, has_type;
};

static int multipart_malformed(struct err *err, const char *why) {
        return err_set(err, ERR_USAGE, "the multipart/form-data body is malformed: %s", why);
}

/* ---- the boundary ---- */

static bool is_boundary(const char *text) {
        static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'()+_,-./:=? ";
        size_t size = strlen(text);
        return size > 0 && size <= MULTIPART_BOUNDARY_MAX && strspn(text, allowed) == size && text[size - 1] != ' ';
}

static int find_boundary(const char *content_type, char ret_boundary[static MULTIPART_BOUNDARY_MAX + 2],
                         struct err *err) {
        bool found = false;
        const char *at = content_type + strcspn(content_type, "; \t");
        while (*(at = http_skip_spaces(at)) == ';') {
                char name[64], value[MULTIPART_BOUNDARY_MAX + 2];
                at = http_skip_spaces(at + 1);
                if (*at == '"' || http_take_word(&at, name, sizeof(name)) < 0 || *at++ != '=' ||
                    http_take_word(&at, value, sizeof(value)) < 0)
                        return multipart_malformed(err, "a parameter of its Content-Type is");
                if (!http_same(name, "boundary"))
                        continue;
                if (found || !is_boundary(value))
                        return multipart_malformed(err, "the boundary in its Content-Type is");
                found = true;
                (void) strcpy(ret_boundary, value);
        }
        return found && *at == '\0' ? 0 : multipart_malformed(err, "its Content-Type names no boundary");
}

int multipart_open(const char *content_type, const struct multipart_events *events, void *context,
                   struct multipart **ret_multipart, struct err *err) {
        char boundary[MULTIPART_BOUNDARY_MAX + 2];
        if (!content_type || !http_same_sized(content_type, strcspn(content_type, "; \t"), "multipart/form-data"))
                return err_set(err, ERR_USAGE, "the body is not multipart/form-data");
        if (find_boundary(content_type, boundary, err) < 0)
                return -1;
        struct multipart *multipart = calloc(1, sizeof(*multipart));
        if (!multipart)
                return err_set(err, ERR_SYSTEM, "out of memory");
        multipart->events = events;
        multipart->context = context;
        (void) stpcpy(stpcpy(multipart->delimiter, "\r\n--"), boundary);
        multipart->delimiter_size = strlen(multipart->delimiter);
        multipart->matched = multipart->imagined = 2;
        *ret_multipart = multipart;
        return 0;
}

void multipart_close(struct multipart *multipart) {
        free(multipart);
}

/* ---- a part's head ---- */

/* Browsers write a quote or a line break in a name as %22, %0D, %0A and leave any other percent sign alone. */
static int take_parameter_value(const char *word, char *ret_text, struct err *err) {
        size_t used = 0;
        for (; *word; word++) {
                char c = *word;
                if (strncmp(word, "%22", 3) == 0) {
                        c = '"';
                        word += 2;
                } else if (strncmp(word, "%0D", 3) == 0 || strncmp(word, "%0A", 3) == 0)
                        return multipart_malformed(err, "a name holds a line break");
                ret_text[used++] = c;
        }
        ret_text[used] = '\0';
        return utf8_is_valid(ret_text, used) && http_is_value(ret_text, used)
                       ? 0
                       : multipart_malformed(err, "a name is not UTF-8 text");
}

static int take_disposition_parameter(struct multipart *multipart, const char *name, const char *word,
                                      struct err *err) {
        bool is_name = http_same(name, "name"), is_file_name = http_same(name, "filename");
        if ((is_name && multipart->has_name) || (is_file_name && multipart->has_file_name))
                return multipart_malformed(err, "a part has two names");
        if (http_same(name, "filename*"))
                return multipart_malformed(err,
                                           "filename* is not allowed in it (RFC 7578); send filename as plain UTF-8");
        if (is_name || is_file_name) {
                multipart->has_name |= is_name;
                multipart->has_file_name |= is_file_name;
                return take_parameter_value(word, is_name ? multipart->name : multipart->file_name, err);
        }
        return 0;
}

static int take_disposition(struct multipart *multipart, const char *at, struct err *err) {
        char name[64], word[MULTIPART_NAME_MAX + 1];
        if (http_take_word(&at, name, sizeof(name)) < 0 || !http_same(name, "form-data"))
                return multipart_malformed(err, "a part's Content-Disposition is not form-data");
        while (*(at = http_skip_spaces(at)) == ';') {
                at = http_skip_spaces(at + 1);
                if (*at == '"' || http_take_word(&at, name, sizeof(name)) < 0 || *at++ != '=' ||
                    http_take_word(&at, word, sizeof(word)) < 0)
                        return multipart_malformed(err, "a parameter of a Content-Disposition is");
                if (take_disposition_parameter(multipart, name, word, err) < 0)
                        return -1;
        }
        return *at == '\0' ? 0 : multipart_malformed(err, "a Content-Disposition is");
}

static int take_part_header(struct multipart *multipart, char *line, struct err *err) {
        char *colon = strchr(line, ':');
        if (!colon || !http_is_token(line, (size_t) (colon - line)) || !http_is_value(colon, strlen(colon)))
                return multipart_malformed(err, "a part's header is");
        *colon = '\0';
        const char *value = http_skip_spaces(colon + 1);
        if (http_same(line, "Content-Disposition"))
                return multipart->has_name ? multipart_malformed(err, "a part has two names")
                                           : take_disposition(multipart, value, err);
        if (http_same(line, "Content-Transfer-Encoding"))
                return http_same(value, "binary") || http_same(value, "8bit") || http_same(value, "7bit")
                               ? 0
                               : multipart_malformed(
                                         err, "a part has a Content-Transfer-Encoding; send its bytes as they are");
        if (!http_same(line, "Content-Type"))
                return 0;
        if (multipart->has_type || strlen(value) >= sizeof(multipart->type))
                return multipart_malformed(err, "a part's Content-Type is");
        (void) strcpy(multipart->type, value);
        multipart->has_type = true;
        return 0;
}

/* The head is whole and ends with an empty line. */
static int take_head(struct multipart *multipart, struct err *err) {
        multipart->has_name = multipart->has_file_name = multipart->has_type = false;
        char *line = multipart->head;
        for (char *end; (end = strstr(line, "\r\n")) != line; line = end + 2) {
                *end = '\0';
                if (take_part_header(multipart, line, err) < 0)
                        return -1;
        }
        if (!multipart->has_name)
                return multipart_malformed(err, "a part has no name");
        if (++multipart->n_parts > MULTIPART_PARTS_MAX)
                return multipart_malformed(err, "it has more than 64 parts");
        struct multipart_part part = { multipart->name, multipart->has_file_name ? multipart->file_name : NULL,
                                       multipart->has_type ? multipart->type : NULL };
        multipart->step = STEP_DATA;
        multipart->in_part = true;
        return multipart->events->on_part(multipart->context, &part, err);
}

static int take_head_byte(struct multipart *multipart, char c, struct err *err) {
        if (multipart->head_size == MULTIPART_HEAD_MAX || c == '\0')
                return multipart_malformed(err, c ? "a part's headers are longer than 4 KiB"
                                                  : "a part's header holds a NUL");
        multipart->head[multipart->head_size++] = c;
        multipart->head[multipart->head_size] = '\0';
        size_t n = multipart->head_size;
        if (n == 2 && memcmp(multipart->head, "\r\n", 2) == 0)
                return take_head(multipart, err);
        return n >= 4 && memcmp(multipart->head + n - 4, "\r\n\r\n", 4) == 0 ? take_head(multipart, err) : 0;
}

/* ---- data, up to a boundary ---- */

static int report_data(struct multipart *multipart, const char *bytes, size_t size, struct err *err) {
        if (size == 0)
                return 0;
        if (!multipart->in_part)
                return multipart_malformed(err, "it does not begin with its boundary");
        return multipart->events->on_data(multipart->context, bytes, size, err);
}

/* Looks for the delimiter. A possible beginning of it is held back, over the end of `bytes` too; it need not be stored,
 * as its length determines it. No byte but the delimiter's first is a CR, so that a match never overlaps another. */
static int multipart_take_data(struct multipart *multipart, const char *bytes, size_t size, size_t *ret_taken,
                               struct err *err) {
        size_t at = 0;
        while (at < size && multipart->matched < multipart->delimiter_size) {
                if (multipart->matched == 0) {
                        const char *cr = memchr(bytes + at, '\r', size - at);
                        at = cr ? (size_t) (cr - bytes) : size;
                        if (!cr)
                                break;
                }
                if (bytes[at] == multipart->delimiter[multipart->matched]) {
                        multipart->matched++;
                        at++;
                        continue;
                }
                size_t earlier = multipart->matched > at ? multipart->matched - at : 0, imagined = multipart->imagined;
                multipart->matched = multipart->imagined = 0;
                if (earlier > imagined &&
                    report_data(multipart, multipart->delimiter + imagined, earlier - imagined, err) < 0)
                        return -1;
        }
        size_t held = multipart->matched < at ? multipart->matched : at;
        if (report_data(multipart, bytes, at - held, err) < 0)
                return -1;
        *ret_taken = at;
        if (multipart->matched < multipart->delimiter_size)
                return 0;
        bool was_in_part = multipart->in_part;
        multipart->matched = multipart->imagined = 0;
        multipart->in_part = false;
        multipart->step = STEP_AFTER;
        return was_in_part ? multipart->events->on_part_end(multipart->context, err) : 0;
}

/* ---- the whole ---- */

/* Behind a boundary: a line break and the next part, or two dashes, perhaps a line break, and nothing more. */
static int take_byte(struct multipart *multipart, char c, struct err *err) {
        static const struct {
                char expected;
                enum step next;
        } steps[] = {
                [STEP_AFTER_LF] = { '\n', STEP_HEAD },
                [STEP_CLOSING] = { '-', STEP_END },
                [STEP_END] = { '\r', STEP_END_LF },
                [STEP_END_LF] = { '\n', STEP_OVER },
        };
        if (multipart->step == STEP_HEAD)
                return take_head_byte(multipart, c, err);
        if (multipart->step == STEP_AFTER && (c == '\r' || c == '-')) {
                multipart->step = c == '-' ? STEP_CLOSING : STEP_AFTER_LF;
                multipart->head_size = 0;
                return 0;
        }
        if (multipart->step == STEP_AFTER || multipart->step == STEP_OVER || c != steps[multipart->step].expected)
                return multipart_malformed(err, "a boundary is followed by something that does not belong there");
        multipart->step = steps[multipart->step].next;
        return 0;
}

int multipart_feed(struct multipart *multipart, const char *bytes, size_t size, struct err *err) {
        if (multipart->step == STEP_FAILED)
                return multipart_malformed(err, "see the first error");
        int code = 0;
        for (size_t at = 0, taken; at < size && code == 0; at += taken) {
                taken = 1;
                if (multipart->step == STEP_DATA)
                        code = multipart_take_data(multipart, bytes + at, size - at, &taken, err);
                else
                        code = take_byte(multipart, bytes[at], err);
        }
        if (code < 0)
                multipart->step = STEP_FAILED;
        return code;
}

int multipart_finish(struct multipart *multipart, struct err *err) {
        if (multipart->step == STEP_END || multipart->step == STEP_OVER)
                return 0;
        return multipart_malformed(err, multipart->step == STEP_FAILED ? "see the first error"
                                                                       : "it ends before its last boundary");
}
