#include "api/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MINUTE_MS = 60 * 1000 };

void quota_table_release(struct quota_table *table) {
        while (table->uses) {
                struct quota_use *use = table->uses;
                table->uses = use->next;
                free(use);
        }
}

struct quota_use *quota_find(struct quota_table *table, const char *owner, const struct quota *quota) {
        struct quota_use *use = table->uses;
        while (use && strcmp(use->owner, owner) != 0)
                use = use->next;
        if (!use) {
                use = calloc(1, sizeof(*use));
                if (!use)
                        return NULL;
                (void) snprintf(use->owner, sizeof(use->owner), "%s", owner);
                use->tokens = (double) quota->rate;
                use->next = table->uses;
                table->uses = use;
        }
        use->quota = *quota;
        return use;
}

unsigned quota_count_request(struct quota_use *use, uint64_t now_ms) {
        double rate = (double) use->quota.rate;
        if (use->quota.rate == 0)
                return 0;
        if (use->filled_ms != 0 && now_ms > use->filled_ms)
                use->tokens += (double) (now_ms - use->filled_ms) * rate / MINUTE_MS;
        use->filled_ms = now_ms;
        if (use->tokens > rate)
                use->tokens = rate;
        if (use->tokens < 1)
                return 1 + (unsigned) ((1 - use->tokens) * 60 / rate);
        use->tokens -= 1;
        return 0;
}
