#include "kernel/kernel_reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_bounds.h"

enum { PARSED_MAX = 256 << 10 };

const char *const kernel_field_names[] = {
        [KERNEL_FIELD_ID] = "id",
        [KERNEL_FIELD_STATUS] = "status",
        [KERNEL_FIELD_EXIT_CODE] = "exit_code",
        [KERNEL_FIELD_EXECUTION_COUNT] = "execution_count",
        [KERNEL_FIELD_RESULT] = "result",
        [KERNEL_FIELD_ERROR] = "error",
        [KERNEL_FIELD_DATA] = "data",
        [KERNEL_FIELDS] = NULL,
};

struct kernel_reply kernel_reply_of(const struct json_scan *scan, const char *payload, size_t size) {
        struct kernel_reply reply = { .payload = payload, .size = size };
        for (size_t i = 0; i < KERNEL_FIELDS; i++) {
                const char *text = payload + scan->found[i].at;
                size_t length = scan->found[i].size;
                if (length == 0 || (length == 4 && memcmp(text, "null", 4) == 0))
                        continue;
                reply.fields[i].text = text;
                reply.fields[i].size = length;
        }
        return reply;
}

bool kernel_reply_is_string(const struct kernel_reply *reply, enum kernel_field field) {
        return reply->fields[field].text && reply->fields[field].text[0] == '"';
}

bool kernel_reply_is(const struct kernel_reply *reply, enum kernel_field field, const char *text) {
        size_t size = strlen(text);
        return kernel_reply_is_string(reply, field) && reply->fields[field].size == size + 2 &&
               memcmp(reply->fields[field].text + 1, text, size) == 0;
}

int64_t kernel_reply_number(const struct kernel_reply *reply, enum kernel_field field) {
        char digits[24] = "", *end;
        size_t size = reply->fields[field].size;
        if (!reply->fields[field].text || size >= sizeof(digits))
                return 0;
        memcpy(digits, reply->fields[field].text, size);
        long long number = strtoll(digits, &end, 10);
        return *end ? 0 : number;
}

json_t *kernel_reply_parse(const struct kernel_reply *reply) {
        if (reply->size > PARSED_MAX || !json_is_bounded(reply->payload, reply->size))
                return NULL;
        return json_loadb(reply->payload, reply->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
}

bool kernel_reply_copy(const struct kernel_reply *reply, struct kernel_reply *ret_copy) {
        char *payload = malloc(reply->size + 1);
        if (!payload)
                return false;
        memcpy(payload, reply->payload, reply->size);
        struct kernel_reply copy = *reply;
        copy.payload = payload;
        for (size_t i = 0; i < KERNEL_FIELDS; i++)
                if (copy.fields[i].text)
                        copy.fields[i].text = payload + (reply->fields[i].text - reply->payload);
        *ret_copy = copy;
        return true;
}

void kernel_reply_release(struct kernel_reply *copy) {
        free((char *) (uintptr_t) copy->payload);
        *copy = (struct kernel_reply) { 0 };
}
