#include "store/requirement.h"

#include <string.h>
#include <strings.h>

#include "base/memory.h"

enum { DEPTH_MAX = 8 }; /* of parentheses in a marker */

/* A recursive-descent parser: each function consumes its part of the text; if the text does not match, it sets `fault`
 * and returns false. */
struct parser {
        const char *at;
        const char *fault;
        int depth;
};

static bool requirement_fail(struct parser *parser, const char *fault) {
        if (!parser->fault)
                parser->fault = fault;
        return false;
}

static void skip_blanks(struct parser *parser) {
        parser->at += strspn(parser->at, " \t");
}

static bool requirement_take(struct parser *parser, const char *token) {
        skip_blanks(parser);
        size_t size = strlen(token);
        if (strncmp(parser->at, token, size) != 0)
                return false;
        parser->at += size;
        return true;
}

static bool is_letter_or_digit(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool requirement_is_name(const char *text, size_t size) {
        if (size == 0 || size > REQUIREMENT_NAME_MAX || !is_letter_or_digit(text[0]) ||
            !is_letter_or_digit(text[size - 1]))
                return false;
        for (size_t i = 0; i < size; i++)
                if (!is_letter_or_digit(text[i]) && !strchr("._-", text[i]))
                        return false;
        return true;
}

static bool take_name(struct parser *parser) {
        skip_blanks(parser);
        size_t size = 0;
        while (is_letter_or_digit(parser->at[size]) || (parser->at[size] && strchr("._-", parser->at[size])))
                size++;
        if (!requirement_is_name(parser->at, size))
                return requirement_fail(parser, "a name has letters and digits, and . _ - between them, at most 100");
        parser->at += size;
        return true;
}

/* "[socks, security]", or nothing. */
static bool take_extras(struct parser *parser) {
        if (!requirement_take(parser, "[") || requirement_take(parser, "]"))
                return true;
        do
                if (!take_name(parser))
                        return false;
        while (requirement_take(parser, ","));
        return requirement_take(parser, "]") || requirement_fail(parser, "the extras lack their \"]\"");
}

/* In this order: a longer one before its own beginning. */
static const char *const comparisons[] = { "===", "==", "~=", "!=", "<=", ">=", "<", ">" };

static bool take_comparison(struct parser *parser) {
        for (size_t i = 0; i < ELEMENTS(comparisons); i++)
                if (requirement_take(parser, comparisons[i]))
                        return true;
        return false;
}

/* ">=23, !=24.1", or nothing. */
static bool take_versions(struct parser *parser) {
        bool more = false;
        while (take_comparison(parser)) {
                skip_blanks(parser);
                size_t size = 0;
                while (is_letter_or_digit(parser->at[size]) || (parser->at[size] && strchr("._*+!-", parser->at[size])))
                        size++;
                if (size == 0)
                        return requirement_fail(parser, "a comparison lacks its version");
                parser->at += size;
                if (!(more = requirement_take(parser, ",")))
                        return true;
        }
        return !more || requirement_fail(parser, "after a comma another version is expected");
}

/* ---- markers ---- */

static bool take_word(struct parser *parser, const char *word) {
        skip_blanks(parser);
        size_t size = strlen(word);
        if (strncmp(parser->at, word, size) != 0 || is_letter_or_digit(parser->at[size]) || parser->at[size] == '_')
                return false;
        parser->at += size;
        return true;
}

/* A quoted text, or a name that the packaging standard knows. */
static bool take_value(struct parser *parser) {
        static const char *const names[] = {
                "python_version",      "python_full_version",    "os_name",
                "sys_platform",        "platform_release",       "platform_system",
                "platform_version",    "platform_machine",       "platform_python_implementation",
                "implementation_name", "implementation_version", "extra",
        };
        skip_blanks(parser);
        char quote = *parser->at;
        if (quote == '\'' || quote == '"') {
                const char *end = strchr(parser->at + 1, quote);
                if (!end)
                        return requirement_fail(parser, "a quoted text in the marker does not end");
                parser->at = end + 1;
                return true;
        }
        for (size_t i = 0; i < ELEMENTS(names); i++)
                if (take_word(parser, names[i]))
                        return true;
        return requirement_fail(parser, "a marker compares quoted texts and names such as python_version");
}

static bool take_relation(struct parser *parser) {
        if (take_comparison(parser) || take_word(parser, "in"))
                return true;
        if (take_word(parser, "not") && take_word(parser, "in"))
                return true;
        return requirement_fail(parser, "a marker compares with <, <=, ==, !=, >=, >, ~=, ===, in or not in");
}

static bool take_marker(struct parser *parser);

static bool take_condition(struct parser *parser) {
        if (!requirement_take(parser, "("))
                return take_value(parser) && take_relation(parser) && take_value(parser);
        if (++parser->depth > DEPTH_MAX)
                return requirement_fail(parser, "the marker has too many parentheses");
        if (!take_marker(parser))
                return false;
        parser->depth--;
        return requirement_take(parser, ")") || requirement_fail(parser, "the marker lacks a \")\"");
}

static bool take_marker(struct parser *parser) {
        do
                if (!take_condition(parser))
                        return false;
        while (take_word(parser, "and") || take_word(parser, "or"));
        return true;
}

/* ---- the whole ---- */

/* pip treats a text that ends like an archive as a file, before it parses it as a requirement. */
static bool looks_like_file(const char *text) {
        static const char *const endings[] = {
                ".whl",    ".zip",     ".tar",    ".tgz",    ".tbz",      ".txz", ".tlz",
                ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.lz", ".tar.lzma", ".egg",
        };
        size_t size = strcspn(text, ";");
        while (size > 0 && strchr(" \t", text[size - 1]))
                size--;
        if (size > 0 && text[size - 1] == ']') {
                const char *open = memchr(text, '[', size);
                size = open ? (size_t) (open - text) : size;
        }
        while (size > 0 && strchr(" \t", text[size - 1]))
                size--;
        for (size_t i = 0; i < ELEMENTS(endings); i++) {
                size_t length = strlen(endings[i]);
                if (size >= length && strncasecmp(text + size - length, endings[i], length) == 0)
                        return true;
        }
        return false;
}

static bool requirement_parse(struct parser *parser) {
        if (!take_name(parser) || !take_extras(parser))
                return false;
        if (requirement_take(parser, "@"))
                return requirement_fail(parser, "addresses are not accepted, only names of packages in the index");
        bool in_parentheses = requirement_take(parser, "(");
        if (!take_versions(parser))
                return false;
        if (in_parentheses && !requirement_take(parser, ")"))
                return requirement_fail(parser, "the versions lack their \")\"");
        if (requirement_take(parser, ";") && !take_marker(parser))
                return false;
        skip_blanks(parser);
        return *parser->at == '\0' ||
               requirement_fail(parser, "after the name may follow [extras], versions and a ; marker");
}

/* Refused, although the grammar allows it. */
static void requirement_fault(struct parser *parser, const char *text) {
        for (const char *at = text; *at; at++)
                if ((*at < ' ' && *at != '\t') || *at > '~' || *at == '\\')
                        (void) requirement_fail(parser, "it has a backslash, or characters that are not plain ASCII");
        if (strlen(text) > REQUIREMENT_MAX)
                (void) requirement_fail(parser, "it is longer than 500 bytes");
        else if (*text == '-')
                (void) requirement_fail(parser, "options of pip are not accepted");
        else if (strchr(text, '/') && strcspn(text, "/") < strcspn(text, ";"))
                (void) requirement_fail(parser,
                                        "paths and addresses are not accepted, only names of packages in the index");
        else if (looks_like_file(text))
                (void) requirement_fail(parser, "it reads as the name of a file");
}

int requirement_check(const char *text, struct err *err) {
        struct parser parser = { .at = text };
        requirement_fault(&parser, text);
        if (!parser.fault && requirement_parse(&parser))
                return 0;
        char shown[81];
        size_t size = 0;
        for (; text[size] && size < sizeof(shown) - 1; size++)
                shown[size] = text[size] < ' ' || text[size] > '~' ? '?' : text[size];
        shown[size] = '\0';
        return err_set(err, ERR_USAGE, "\"%s\" is no package that can be installed: %s; write for example attrs>=23",
                       shown, parser.fault);
}
