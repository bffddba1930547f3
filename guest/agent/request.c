#include "request.h"

#include "child.h"
#include "file.h"
#include "link.h"
#include "removal.h"
#include "users.h"
#include "watch.h"
#include "write.h"

/* Frames that the host can send. `answer` 0: there is no answer unless it fails. */
static const struct operation {
        enum frame_type type, answer;
        int (*serve)(struct request *request);
} operations[] = {
        { FRAME_START, FRAME_STARTED, child_start },
        { FRAME_SIGNAL, 0, child_signal },
        { FRAME_INPUT, 0, child_input },
        { FRAME_INPUT_END, 0, child_input_end },
        { FRAME_RESIZE, 0, child_resize },
        { FRAME_ACK, 0, child_acknowledge },
        { FRAME_PERMIT, 0, users_permit },
        { FRAME_STAT, FRAME_DONE, file_stat },
        { FRAME_LIST, FRAME_DONE, file_list },
        { FRAME_READ, FRAME_DONE, file_read },
        { FRAME_WRITE, FRAME_DONE, write_serve },
        { FRAME_MOVE, FRAME_DONE, file_move },
        { FRAME_REMOVE, FRAME_DONE, removal_start },
        { FRAME_MKDIR, FRAME_DONE, file_mkdir },
        { FRAME_WATCH, FRAME_DONE, watch_start },
        { FRAME_UNWATCH, FRAME_DONE, watch_end },
};

static const struct operation *find_operation(uint16_t type) {
        for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
                if (operations[i].type == type)
                        return &operations[i];
        return NULL;
}

bool request_serve(const struct frame *frame) {
        const struct operation *operation = find_operation(frame->type);
        if (!operation) /* QUIT, or nonsense */
                return false;
        struct request request = { .id = frame->id,
                                   .fields = frame_read(frame),
                                   .fds = frame->fds,
                                   .n_fds = frame->n_fds,
                                   .step = "reading the request" };
        int code = operation->serve(&request);
        if (code < 0)
                link_send_failed(request.id, code, request.step);
        else if (code == 0 && operation->answer)
                link_send(operation->answer, request.id, &request.answer);
        frame_writer_release(&request.answer);
        return true;
}
