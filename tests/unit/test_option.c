/* The parser of options, and the table of `glovebox run`. */
#include "cli/ui/option.h"

#include "base/memory.h"
#include "cli/run_options.h"
#include "cli/session_request.h"
#include "cli/ui/suggest.h"
#include "cli/ui/terminal.h"
#include "tap.h"

enum { WORDS_MAX = 16 };

/* One parse of a command line of `run`: the words are copied, since the parser moves them. */
struct attempt {
        char *words[WORDS_MAX + 1];
        struct run_options options;
        struct option_rest rest;
        struct err err;
        int result;
};

static void attempt_begin(struct attempt *attempt, const char *const *words) {
        *attempt = (struct attempt) { .options = RUN_OPTIONS_DEFAULT };
        for (size_t i = 0; i < WORDS_MAX && words[i]; i++)
                attempt->words[i] = (char *) (uintptr_t) words[i];
        attempt->result =
                option_parse(&run_option_table, &attempt->options, attempt->words, &attempt->rest, &attempt->err);
}

static void attempt_end(struct attempt *attempt) {
        run_request_release(&attempt->options.request);
}

#define TRY(attempt, ...) attempt_begin(&(attempt), (const char *const[]) { __VA_ARGS__ __VA_OPT__(, ) NULL })

static void clear_variables(void) {
        for (size_t i = 0; i < run_option_table.n_rows; i++)
                if (run_option_table.rows[i].variable)
                        (void) unsetenv(run_option_table.rows[i].variable);
}

static void test_forms(void) {
        struct attempt a;
        TRY(a, "--memory", "1g", "--cpus=0.5", "-qc", "print(1)", "one", "--json");
        ok(a.result == 0, "an ordinary line is read");
        ok(a.options.request.limits.memory_bytes == GIB, "a value in the next word");
        ok(a.options.request.limits.cpu_thousandths == 500, "a value after the equals sign");
        ok(a.options.request.quiet, "a flag among letters");
        is_text(a.options.code_text, "print(1)", "the last letter's value in the next word");
        ok(!a.options.request.json && a.rest.operands[0] && strcmp(a.rest.operands[1], "--json") == 0,
           "the first operand ends the options");
        attempt_end(&a);

        TRY(a, "-cprint(2)", "--", "--memory");
        ok(a.result == 0 && strcmp(a.options.code_text, "print(2)") == 0, "a value in the letter's own word");
        ok(a.rest.after_dashes && strcmp(a.rest.operands[0], "--memory") == 0, "two dashes end the options");
        attempt_end(&a);

        TRY(a, "--pids", "7", "--pids", "8");
        ok(a.result == 0 && a.options.request.limits.pids == 8, "the last of two counts");
        attempt_end(&a);

        TRY(a, "--json", "--help", "--nonsense");
        ok(a.result == 0 && a.rest.help, "help is met before what follows it is looked at");
        attempt_end(&a);

        TRY(a, "-c", "");
        ok(a.result == 0 && a.options.code_text && !*a.options.code_text, "empty code is code");
        attempt_end(&a);
}

/* Each line is refused with wrong usage, and the message says this. */
static const struct {
        const char *words[4];
        const char *said;
} refusals[] = {
        { { "--memry", "1g" }, "unknown option --memry; did you mean --memory?" },
        { { "--mem=1g" }, "did you mean --memory?" },
        { { "--frobnicate" }, "unknown option --frobnicate; --help lists" },
        { { "-z" }, "unknown option -z" },
        { { "--memory" }, "option --memory needs a value: --memory SIZE" },
        { { "--workspace", "--json" }, "option --workspace needs a value, but --json follows" },
        { { "--workspace", "--" }, "option --workspace needs a value" },
        { { "--workspace", "" }, "--workspace: the value is empty" },
        { { "--json=1" }, "option --json takes no value" },
        { { "-c", "1", "-c2" }, "option -c is given twice" },
        { { "--memory", "0" }, "a Python interpreter alone needs about 16m" },
        { { "--memory", "-1" }, "--memory: \"-1\" is not a size" },
        { { "--memory", "12x" }, "\"12x\" is not a size" },
        { { "--memory", "2t" }, "choose from 16 MiB to 1 TiB" },
        { { "--cpus", "0.001" }, "choose from 0.01 to 1024" },
        { { "--pids", "32769" }, "choose from 1 to 32768" },
        { { "--timeout", "8d" }, "out of range" },
        { { "--timeout", "99e99" }, "is not a time" },
        { { "--tmp-size", "65g" }, "choose from 1 MiB to 64 GiB" },
        { { "--disk", "1023k" }, "choose from 1 MiB to 1 TiB" },
        { { "--language", "perl" }, "\"perl\" is not one of python, bash, sh" },
        { { "--network", "allow" }, "use --allow-host" },
        { { "--mount", "/a" }, "lacks a source or a destination" },
        { { "--mount", ":/a" }, "lacks a source or a destination" },
        { { "--mount", "/a:b" }, "is not an absolute path" },
        { { "--mount", "/a:/b:rx" }, "\"rx\" is neither ro nor rw" },
        { { "--mount", "/a:/b", "--mount", "/c:/b/" }, "two mounts have the destination /b" },
        { { "--env", "1A=2" }, "\"1A\" is not a variable name" },
        { { "--env", "=2" }, "\"\" is not a variable name" },
        { { "--env", "GLOVEBOX_TEST_UNSET" }, "is not set here" },
};

static void test_refusals(void) {
        for (size_t i = 0; i < ELEMENTS(refusals); i++) {
                struct attempt a;
                const char *words[5] = { 0 };
                memcpy(words, refusals[i].words, sizeof(refusals[i].words));
                attempt_begin(&a, words);
                ok(a.result < 0 && a.err.code == ERR_USAGE && strstr(a.err.message, refusals[i].said),
                   "%s %s is refused", words[0], words[1] ? words[1] : "");
                if (!strstr(a.err.message, refusals[i].said))
                        printf("# said: %s\n", a.err.message);
                attempt_end(&a);
        }
}

static void test_variables(void) {
        struct attempt a;
        (void) setenv("GLOVEBOX_MEMORY", "64m", 1);
        (void) setenv("GLOVEBOX_ALLOW_WEAKER", "yes", 1);
        (void) setenv("GLOVEBOX_PIDS", "", 1);
        TRY(a, "-c", "1");
        ok(a.result == 0 && a.options.request.limits.memory_bytes == 64 * MIB, "a variable gives the default");
        ok(a.options.request.allow_weaker, "a variable sets a flag");
        ok(a.options.request.limits.pids == 50, "an empty variable counts as unset");
        attempt_end(&a);
        TRY(a, "--memory", "32m");
        ok(a.result == 0 && a.options.request.limits.memory_bytes == 32 * MIB, "the command line goes before it");
        attempt_end(&a);
        (void) setenv("GLOVEBOX_ALLOW_WEAKER", "maybe", 1);
        TRY(a, "-c", "1");
        ok(a.result < 0 && strstr(a.err.message, "GLOVEBOX_ALLOW_WEAKER"), "a malformed variable is named");
        attempt_end(&a);
        clear_variables();
}

static void test_mounts_and_env(void) {
        struct attempt a;
        (void) setenv("GLOVEBOX_TEST_SET", "mine", 1);
        TRY(a, "--mount", "a:b:/c//d/:rw", "--mount=x:/y", "-e", "K=1", "-e", "GLOVEBOX_TEST_SET", "--env", "K=2=3");
        ok(a.result == 0 && a.options.request.n_mounts == 2 && a.options.request.n_env == 2, "both are repeatable");
        if (a.options.request.n_mounts == 2 && a.options.request.n_env == 2) {
                const struct run_request *request = &a.options.request;
                is_text(request->mounts[0].source, "a:b", "a source may hold colons");
                is_text(request->mounts[0].destination, "/c/d", "a destination is tidied");
                ok(request->mounts[0].writable && !request->mounts[1].writable, "read-only unless asked");
                is_text(request->env[0], "K=2=3", "the last of one name counts, and its value is whole");
                is_text(request->env[1], "GLOVEBOX_TEST_SET=mine", "a bare name passes the caller's own on");
                ok(!request->env[2], "the list ends");
        }
        attempt_end(&a);
        TRY(a, "--data", ".", "--mount", "x:/data");
        ok(run_options_check(&a.options, &a.err) < 0 && strstr(a.err.message, "--data"), "one place, one mount");
        attempt_end(&a);
}

/* What the help calls the default is the default. */
static void test_defaults(void) {
        for (size_t i = 0; i < run_option_table.n_rows; i++) {
                const struct option_row *row = &run_option_table.rows[i];
                if (!row->standard || row->kind == OPTION_TEXT || row->kind == OPTION_CHOICE)
                        continue;
                struct run_options built_in = RUN_OPTIONS_DEFAULT, typed = RUN_OPTIONS_DEFAULT;
                struct err err;
                uint64_t *field = (uint64_t *) (void *) ((char *) &typed + row->offset);
                *field = 0;
                ok(option_assign(row, row->name, row->standard, &typed, &err) == 0 &&
                           memcmp(field, (char *) &built_in + row->offset, sizeof(*field)) == 0,
                   "the default of --%s is %s", row->name, row->standard);
        }
}

/* Two rows of one name or letter would hide each other. */
static void test_rows_are_distinct(void) {
        bool distinct = true;
        for (size_t i = 0; i < run_option_table.n_rows; i++) {
                const struct option_row *a = &run_option_table.rows[i];
                if (!a->help || !a->group || (a->kind != OPTION_FLAG) != (a->argument != NULL) || a->letter == 'h')
                        distinct = false;
                for (size_t j = 0; j < i; j++) {
                        const struct option_row *b = &run_option_table.rows[j];
                        if (strcmp(a->name, b->name) == 0 || (a->letter && a->letter == b->letter))
                                distinct = false;
                }
        }
        ok(distinct, "rows are distinct and complete");
}

static void test_operands_anywhere(void) {
        static const struct option_row rows[] = { { .name = "flag", .kind = OPTION_FLAG } };
        static const struct option_table table = { .rows = rows, .n_rows = 1, .operands_anywhere = true };
        char words[][8] = { "a", "--flag", "-", "--", "--flag" };
        char *args[] = { words[0], words[1], words[2], words[3], words[4], NULL };
        bool flag = false;
        struct option_rest rest;
        struct err err;
        ok(option_parse(&table, &flag, args, &rest, &err) == 0 && flag, "options may follow operands");
        ok(strcmp(rest.operands[0], "a") == 0 && strcmp(rest.operands[1], "-") == 0 &&
                   strcmp(rest.operands[2], "--flag") == 0 && !rest.operands[3],
           "operands keep their order");
}

/* The names that an option and its variable had in earlier versions. */
static void test_older_names(void) {
        static const struct option_row rows[] = { { .name = "box-pool",
                                                    .older_name = "stock",
                                                    .kind = OPTION_COUNT,
                                                    .variable = "GLOVEBOX_TEST_NEW",
                                                    .older_variable = "GLOVEBOX_TEST_OLD",
                                                    .max = 64 } };
        static const struct option_table table = { .rows = rows, .n_rows = 1 };
        char words[][12] = { "--stock", "3" };
        char *args[] = { words[0], words[1], NULL }, *none[] = { NULL };
        uint64_t count = 0;
        struct option_rest rest;
        struct err err;
        ok(option_parse(&table, &count, args, &rest, &err) == 0 && count == 3, "an older name works");
        (void) setenv("GLOVEBOX_TEST_OLD", "5", 1);
        ok(option_parse(&table, &count, none, &rest, &err) == 0 && count == 5, "an older variable works");
        (void) setenv("GLOVEBOX_TEST_NEW", "7", 1);
        ok(option_parse(&table, &count, none, &rest, &err) == 0 && count == 7, "the present variable goes before it");
}

static void test_harmless_and_near(void) {
        char text[] = "a\033[2J\n\x7f\xc2\x9b\xc3\xa9";
        terminal_make_harmless(text);
        is_text(text, "a?[2J????\xc3\xa9", "control characters cannot reach a terminal");
        struct suggestion near = { .word = "a-very-long-word-that-nobody-would-ever-mean-to-type" };
        suggestion_consider(&near, "run");
        ok(!suggestion_best(&near), "a long word has no neighbour");
}

/* A session's name comes first or after options, and ends nothing; what follows the second operand is not ours. */
static void test_leading_operand(void) {
        static const char *const lines[][8] = {
                { "demo", "--memory", "1g", "-q", "script.py", "--json", NULL },
                { "--memory", "1g", "demo", "-q", "script.py", "--json", NULL },
                { "-q", "--memory=1g", "demo", "script.py", "--json", NULL },
        };
        for (size_t i = 0; i < ELEMENTS(lines); i++) {
                struct session_options options = SESSION_OPTIONS_DEFAULT;
                char *words[8] = { NULL };
                for (size_t n = 0; lines[i][n]; n++)
                        words[n] = (char *) (uintptr_t) lines[i][n];
                struct option_rest rest;
                struct err err;
                ok(option_parse(&exec_option_table, &options, words, &rest, &err) == 0 && options.run.request.quiet &&
                           options.run.request.limits.memory_bytes == GIB && !options.run.request.json,
                   "options on both sides of the name are read, form %zu", i);
                ok(strcmp(rest.operands[0], "demo") == 0 && strcmp(rest.operands[1], "script.py") == 0 &&
                           strcmp(rest.operands[2], "--json") == 0,
                   "and what follows the script is left alone");
        }
}

int main(void) {
        clear_variables();
        test_forms();
        test_refusals();
        test_variables();
        test_mounts_and_env();
        test_defaults();
        test_rows_are_distinct();
        test_operands_anywhere();
        test_older_names();
        test_harmless_and_near();
        test_leading_operand();
        return done_testing();
}
