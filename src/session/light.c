#include "session/light.h"

#include <ctype.h>
#include <string.h>

#include "base/memory.h"

/* Whoever imports anything else, or code that cannot be seen from here, might want what is preloaded. */
static const char *const plain_modules[] = {
        "__future__", "abc", "argparse", "array", "ast", "asyncio", "base64", "binascii", "bisect", "calendar", "cmath",
        "codecs", "collections", "contextlib", "copy", "csv", "ctypes", "dataclasses", "datetime", "decimal", "difflib",
        "enum", "errno", "fcntl", "fractions", "functools", "gc", "getpass", "glob", "gzip", "hashlib", "heapq", "hmac",
        "html", "inspect", "io", "itertools", "json", "locale", "logging", "math", "mmap", "numbers", "operator", "os",
        "pathlib", "platform", "pprint", "queue", "random", "re", "resource", "secrets", "select", "shlex", "shutil",
        "signal", "socket", "sqlite3", "stat", "statistics", "string", "struct", "subprocess", "sys", "tempfile",
        "textwrap", "threading", "time", "timeit", "traceback", "types", "typing", "unicodedata", "urllib", "uuid",
        "warnings", "weakref", "xml", "zipfile", "zlib", "zoneinfo",
};

enum { CODE_MAX = 64 << 10 }; /* longer than that it is not searched: nobody waits for it */

static bool is_word(char c) {
        return isalnum((unsigned char) c) || c == '_';
}

static size_t word_size(const char *text) {
        size_t size = 0;
        while (is_word(text[size]))
                size++;
        return size;
}

static const char *skip_blanks(const char *text) {
        while (*text == ' ' || *text == '\t')
                text++;
        return text;
}

static bool is_plain_module(const char *name, size_t size) {
        for (size_t i = 0; i < ELEMENTS(plain_modules); i++)
                if (strlen(plain_modules[i]) == size && memcmp(plain_modules[i], name, size) == 0)
                        return true;
        return false;
}

/* "a, b.c as d, e": are all of them plain? Whatever follows the last name is not looked at. */
static bool are_plain_modules(const char *names) {
        for (;;) {
                names = skip_blanks(names);
                size_t size = word_size(names);
                if (!is_plain_module(names, size))
                        return false;
                names += size;
                while (is_word(*names) || *names == '.' || *names == ' ' || *names == '\t')
                        names++; /* the rest of a dotted name, and "as d" */
                if (*names++ != ',')
                        return true;
        }
}

/* The word "import" or "from" at `at`, which follows something that is no part of a word. */
static bool is_keyword(const char *code, const char *at, const char *keyword) {
        size_t size = strlen(keyword);
        return (at == code || !is_word(at[-1])) && strncmp(at, keyword, size) == 0 && !is_word(at[size]);
}

/* "from a.b import c": where the names end if this is one, and else NULL, as in "yield from a". */
static const char *find_import(const char *code, const char *module) {
        while (is_word(*module) || *module == '.')
                module++;
        module = skip_blanks(module);
        return *module == '\\' || is_keyword(code, module, "import") ? module : NULL;
}

static bool imports_only_plain(const char *code) {
        for (const char *at = code; (at = strpbrk(at, "if")); at++) {
                if (is_keyword(code, at, "import") && !are_plain_modules(at + strlen("import")))
                        return false;
                if (!is_keyword(code, at, "from"))
                        continue;
                const char *module = skip_blanks(at + strlen("from")), *names = find_import(code, module);
                if (names && !is_plain_module(module, word_size(module)))
                        return false;
                if (names)
                        at = names; /* which are no modules, or parts of this one */
        }
        return true;
}

/* Names of the list within the text, as part of a longer word too. */
static bool mentions_any(const char *code, const char *list) {
        char name[64];
        while (*(list += strspn(list, ", \t"))) {
                size_t size = strcspn(list, ", \t");
                if (size >= sizeof(name))
                        return true;
                memcpy(name, list, size);
                name[size] = '\0';
                if (strstr(code, name))
                        return true;
                list += size;
        }
        return false;
}

bool light_suits(const json_t *what, const char *preload) {
        /* What unpickles, reads tables, or runs code that is not this text. */
        static const char *const doubtful[] = { "load(", "save(", "pickle", "__import__", "importlib", "exec(", "eval(",
                                                "runpy", "modules" };
        if (!*preload)
                return false; /* there is one kind only */
        if (json_object_get(what, "argv"))
                return true; /* a process of its own, which has nothing of what its kernel imported */
        const char *code = json_string_value(json_object_get(what, "code"));
        if (!code || strlen(code) > CODE_MAX || strlen(code) != json_string_length(json_object_get(what, "code")))
                return false;
        for (size_t i = 0; i < ELEMENTS(doubtful); i++)
                if (strstr(code, doubtful[i]))
                        return false;
        return !mentions_any(code, preload) && imports_only_plain(code);
}
