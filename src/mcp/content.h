/* A run's result as the content of a tool's result, for a model. It is bounded; omitted parts are named, with the way
 * to read them. */
#pragma once

#include "mcp/mcp.h"

/* "content":[{"type":"text","text":…}], and "isError" if so. */
void content_put_text_result(struct json_writer *members, const char *text, size_t size, bool is_error);

/* Answers with a run's result (the JSON of docs/PROTOCOL.md) and the output that was collected. */
void content_answer_run(struct mcp_call *call, const char *result, size_t size);

/* Answers with the output so far of a run that goes on. */
void content_answer_unfinished(struct mcp_call *call);

/* The name of the call's run for read_output: SANDBOX.RUN. */
void content_name_run(const struct mcp_call *call, char *ret_name, size_t room);

/* One block that shows an image; base64 is JSON, with its quotes. */
void content_put_image(struct json_writer *members, const char *mime, const char *base64, size_t size);

/* One block that links to a file: its path below /workspace. */
void content_put_link(const struct mcp_call *call, struct json_writer *members, const char *relative, int64_t size,
                      const char *mime);
