/* Columns and ages, as people read them. */
#include "cli/ui/table.h"

#include "base/memory.h"
#include "tap.h"

static const struct {
        uint64_t ms;
        const char *text;
} ages[] = {
        { 0, "now" },       { 999, "now" },    { 1000, "1s" },      { 59999, "59s" },   { 60000, "1m" },
        { 3599999, "59m" }, { 3600000, "1h" }, { 86399999, "23h" }, { 86400000, "1d" }, { 8640000000, "100d" },
};

static void test_ages(void) {
        char text[32];
        for (size_t i = 0; i < ELEMENTS(ages); i++)
                is_text(format_age(ages[i].ms, text), ages[i].text, "%s", ages[i].text);
}

static void test_columns(void) {
        static const char *const headings[] = { "NAME", "N" };
        struct table table = table_make(headings, 2);
        table_add(&table, "d\xc3\xa9mo-long");
        table_add_format(&table, "%d", 5);
        table_add(&table, "a\x1b[31m\n");
        table_add(&table, NULL);
        char *text = NULL;
        size_t size = 0;
        FILE *file = open_memstream(&text, &size);
        table_print(&table, file);
        (void) fclose(file);
        is_text(text,
                "NAME       N\n"
                "d\xc3\xa9mo-long  5\n"
                "a?[31m?    -\n",
                "aligned by characters, harmless, what is missing is a dash");
        free(text);
        table_release(&table);
}

int main(void) {
        test_ages();
        test_columns();
        return done_testing();
}
