#include "engine/build_output.h"

#include <jansson.h>
#include <string.h>

#include "base/memory.h"

static void copy_printable(char to[static BUILD_OUTPUT_TEXT_MAX + 1], const char *text) {
        size_t n = 0;
        text += strspn(text, " \r\n\t");
        for (; *text && n < BUILD_OUTPUT_TEXT_MAX;
             text++) /* without control characters: it may be shown on a terminal */
                to[n++] = (unsigned char) *text < ' ' || *text == 127 ? ' ' : *text;
        while (n > 0 && to[n - 1] == ' ')
                n--;
        to[n] = '\0';
}

static void read_build_line(struct build_output *output) {
        json_t *json = json_loadb(output->line, output->size, 0, NULL);
        static const char *const error_keys[] = { "error", "message", "cause" }, *const message_keys[] = { "stream",
                                                                                                           "status" };
        for (size_t i = 0; i < ELEMENTS(error_keys) && !*output->error; i++) {
                const char *text = json_string_value(json_object_get(json, error_keys[i]));
                if (text)
                        copy_printable(output->error, text);
        }
        for (size_t i = 0; i < ELEMENTS(message_keys); i++) {
                const char *text = json_string_value(json_object_get(json, message_keys[i]));
                if (!text || !text[strspn(text, " \r\n\t")])
                        continue;
                copy_printable(output->last_message, text);
                if (output->report)
                        output->report(output->context, output->last_message);
        }
        json_decref(json);
}

void build_output_feed(void *context, const char *bytes, size_t size) {
        struct build_output *output = context;
        for (size_t i = 0; i < size; i++) {
                if (bytes[i] != '\n') {
                        output->is_too_long |= output->size == BUILD_OUTPUT_LINE_MAX;
                        if (!output->is_too_long)
                                output->line[output->size++] = bytes[i];
                        continue;
                }
                build_output_end(output);
        }
}

void build_output_end(struct build_output *output) {
        if (!output->is_too_long && output->size > 0)
                read_build_line(output);
        output->size = 0;
        output->is_too_long = false;
}
