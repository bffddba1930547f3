#include "mcp/output.h"

#include <stdlib.h>
#include <string.h>

void mcp_output_release(struct mcp_output *output) {
        free(output->head);
        free(output->tail);
        output->head = output->tail = NULL;
}

static void add_tail(struct mcp_output *output, const char *bytes, size_t size) {
        if (size > MCP_OUTPUT_TAIL) {
                output->tail_seen += size - MCP_OUTPUT_TAIL;
                bytes += size - MCP_OUTPUT_TAIL;
                size = MCP_OUTPUT_TAIL;
        }
        size_t at = output->tail_seen % MCP_OUTPUT_TAIL, first = MCP_OUTPUT_TAIL - at;
        first = first < size ? first : size;
        memcpy(output->tail + at, bytes, first);
        memcpy(output->tail, bytes + first, size - first);
        output->tail_seen += size;
}

bool mcp_output_add(struct mcp_output *output, const char *bytes, size_t size) {
        uint64_t begin = output->seen;
        output->seen += size;
        if (output->seen <= output->skip)
                return true;
        if (begin < output->skip) {
                bytes += output->skip - begin;
                size -= output->skip - begin;
        }
        if (!output->head && !(output->head = malloc(MCP_OUTPUT_HEAD)))
                return false;
        size_t room = MCP_OUTPUT_HEAD - output->head_size, taken = size < room ? size : room;
        memcpy(output->head + output->head_size, bytes, taken);
        output->head_size += taken;
        if (taken == size)
                return true;
        if (!output->keeps_end)
                return false;
        if (!output->tail && !(output->tail = malloc(MCP_OUTPUT_TAIL)))
                return false;
        add_tail(output, bytes + taken, size - taken);
        return true;
}

uint64_t mcp_output_left_out(const struct mcp_output *output) {
        if (output->keeps_end)
                return output->tail_seen > MCP_OUTPUT_TAIL ? output->tail_seen - MCP_OUTPUT_TAIL : 0;
        uint64_t shown = output->skip + output->head_size;
        return output->seen > shown ? output->seen - shown : 0;
}

char *mcp_output_end(const struct mcp_output *output, size_t *ret_size) {
        size_t size = output->tail_seen < MCP_OUTPUT_TAIL ? (size_t) output->tail_seen : MCP_OUTPUT_TAIL;
        size_t at = output->tail_seen > MCP_OUTPUT_TAIL ? output->tail_seen % MCP_OUTPUT_TAIL : 0;
        char *text = size > 0 ? malloc(size) : NULL;
        if (!text)
                return NULL;
        memcpy(text, output->tail + at, size - at);
        memcpy(text + size - at, output->tail, at);
        *ret_size = size;
        return text;
}

void mcp_output_last_line(const struct mcp_output *output, char *ret_line, size_t room) {
        size_t end_size = 0, n = 0;
        char *owned = mcp_output_end(output, &end_size);
        const char *bytes = owned ? owned : output->head;
        size_t size = owned ? end_size : output->head_size;
        while (size > 0 && (bytes[size - 1] == '\n' || bytes[size - 1] == '\r'))
                size--;
        size_t from = size;
        while (from > 0 && bytes[from - 1] != '\n' && bytes[from - 1] != '\r' && size - from < room - 1)
                from--;
        while (from < size && ((unsigned char) bytes[from] & 0xc0) == 0x80) /* not in the middle of a character */
                from++;
        for (; from < size; from++)
                if ((unsigned char) bytes[from] >= ' ')
                        ret_line[n++] = bytes[from];
        ret_line[n] = '\0';
        free(owned);
}
