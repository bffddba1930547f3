/* The small parts of MCP: messages and eras, output with its middle left out, pieces of JSON, base64. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "mcp/message.h"
#include "mcp/output.h"
#include "mcp/slice.h"
#include "tap.h"

static void test_base64(void) {
        static const struct {
                const char *plain, *encoded;
        } rows[] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" } };
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                struct json_writer text = { 0 };
                char plain[16];
                size_t size = 99;
                base64_put(&text, rows[i].plain, strlen(rows[i].plain));
                ok(text.size == strlen(rows[i].encoded) &&
                           memcmp(text.bytes ? text.bytes : "", rows[i].encoded, text.size) == 0,
                   "base64 of \"%s\"", rows[i].plain);
                ok(base64_decode(rows[i].encoded, strlen(rows[i].encoded), plain, &size) == 0 &&
                           size == strlen(rows[i].plain) && memcmp(plain, rows[i].plain, size) == 0,
                   "and back");
                json_writer_release(&text);
        }
        char plain[16];
        size_t size;
        ok(base64_decode("Zg=", 3, plain, &size) == -EINVAL, "a length that is no multiple of four");
        ok(base64_decode("Z*==", 4, plain, &size) == -EINVAL, "a letter that is none");
        ok(base64_decode("=Zg=", 4, plain, &size) == -EINVAL, "padding at the beginning");
}

static void test_output(void) {
        struct mcp_output output = { .keeps_end = true };
        char line[64], *end;
        size_t size = 0;
        for (int i = 0; i < 10000; i++) {
                (void) snprintf(line, sizeof(line), "%07d\n", i);
                (void) mcp_output_add(&output, line, 8);
        }
        end = mcp_output_end(&output, &size);
        ok(output.head_size == MCP_OUTPUT_HEAD && memcmp(output.head, "0000000\n0000001\n", 16) == 0,
           "the beginning is kept");
        ok(size == MCP_OUTPUT_TAIL && memcmp(end + size - 8, "0009999\n", 8) == 0, "the end is kept, in order");
        ok(mcp_output_left_out(&output) == 80000 - MCP_OUTPUT_HEAD - MCP_OUTPUT_TAIL, "the middle is counted");
        mcp_output_last_line(&output, line, sizeof(line));
        ok(strcmp(line, "0009999") == 0, "the last line is known");
        free(end);
        mcp_output_release(&output);
        struct mcp_output part = { .skip = 6 };
        ok(mcp_output_add(&part, "abcdefghij", 10) && part.head_size == 4 && memcmp(part.head, "ghij", 4) == 0,
           "what comes before the first byte wanted is skipped");
        mcp_output_release(&part);
}

static void test_slice(void) {
        static const char text[] = "{\"a\":1,\"b\\\"\":[{\"c\":\"x,}\"},2],\"d\":{\"e\":\"q\\\"r\"},\"t\":true}";
        const struct slice whole = { text, sizeof(text) - 1 };
        struct slice one;
        size_t n = 0;
        ok(slice_number(slice_get(whole, "a")) == 1, "a number");
        ok(slice_is_true(slice_get(whole, "t")), "a truth");
        for (size_t at = 0; slice_next(slice_get(whole, "b\\\""), &at, NULL, &one);)
                n++;
        ok(n == 2, "elements of an array, with brackets in texts");
        char *inside = slice_text(slice_get(slice_get(whole, "d"), "e"), 100);
        ok(inside && strcmp(inside, "q\"r") == 0, "a text with an escape");
        free(inside);
        ok(!slice_get(whole, "none").bytes && !slice_text(slice_get(whole, "a"), 100), "what is not there, or no text");
}

static int read_era(const char *text, const char *header, enum mcp_era *ret_era) {
        struct mcp_message message;
        struct mcp_error error = { 0 };
        json_t *json = NULL;
        int code = mcp_message_parse(text, strlen(text), &json, &message, &error);
        if (code == 0)
                code = mcp_message_check_era(&message, header, &error);
        *ret_era = message.era;
        json_decref(error.data);
        json_decref(json);
        return code < 0 ? error.code : 0;
}

static void test_eras(void) {
        enum mcp_era era;
        ok(read_era("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", NULL, &era) == 0 && era == MCP_LEGACY,
           "a message that names no version is of the older era");
        ok(read_era("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{\"" MCP_META
                    "protocolVersion\":\"" MCP_MODERN_VERSION "\",\"" MCP_META "clientCapabilities\":{}}}}",
                    NULL, &era) == 0 &&
                   era == MCP_MODERN,
           "one that names its version is of the modern one");
        ok(read_era("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", MCP_MODERN_VERSION, &era) ==
                   MCP_INVALID_PARAMS,
           "a header alone is not enough");
        ok(read_era("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":{\"_meta\":{\"" MCP_META
                    "protocolVersion\":\"1\"}}}",
                    NULL, &era) == MCP_UNSUPPORTED_VERSION,
           "an unknown version is refused");
        ok(read_era("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}", NULL, &era) == MCP_INVALID_REQUEST,
           "null is no id");
        ok(read_era("[]", NULL, &era) == MCP_INVALID_REQUEST, "batches are refused");
        ok(read_era("{", NULL, &era) == MCP_PARSE_ERROR, "malformed JSON is reported as such");
}

int main(void) {
        test_base64();
        test_output();
        test_slice();
        test_eras();
        return done_testing();
}
