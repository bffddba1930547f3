#include "cli/box_target.h"

#include "wire/frame.h"

enum { MAIN_PROCESS = 1 };

static struct box *box_of(struct relay_target *target) {
        return ((struct box_target *) target)->box;
}

static void kill_box(struct relay_target *target) {
        (void) box_kill(box_of(target), NULL);
}

static int signal_program(struct relay_target *target, int signal_number) {
        struct frame_writer payload = { 0 };
        frame_put_u32(&payload, (uint32_t) signal_number);
        frame_put_u32(&payload, 1);
        int code = frame_send(box_of(target)->control_fd, FRAME_SIGNAL, MAIN_PROCESS, &payload, NULL, 0);
        frame_writer_release(&payload);
        return code;
}

static size_t watch_agent(struct relay_target *target, struct pollfd *ret_watched) {
        ret_watched[0] = (struct pollfd) { .fd = box_of(target)->control_fd, .events = POLLIN };
        return 1;
}

static bool serve_agent(struct relay_target *target, const struct pollfd *watched, struct relay_outcome *ret_outcome) {
        if (!watched[0].revents)
                return false;
        struct frame frame;
        if (frame_receive(box_of(target)->control_fd, &frame) < 0) {
                ret_outcome->end = RELAY_BOX_DIED;
                return true;
        }
        struct frame_reader fields = frame_read(&frame);
        uint32_t number = 0;
        bool is_over = false;
        if (frame.type == FRAME_EXITED && frame.id == MAIN_PROCESS && frame_get_u32(&fields, &number) &&
            frame_get_u64(&fields, &ret_outcome->cpu_us) && frame_get_u64(&fields, &ret_outcome->memory_peak_kib)) {
                ret_outcome->end = RELAY_EXITED;
                ret_outcome->wait_status = (int) number;
                is_over = true;
        } else if (frame.type == FRAME_FAILED && frame_get_u32(&fields, &number)) {
                ret_outcome->end = RELAY_NOT_STARTED;
                ret_outcome->failed_errno = (int) number;
                is_over = true;
        }
        frame_release(&frame);
        return is_over;
}

static const struct relay_target_type box_target_type = { kill_box,    signal_program, watch_agent,
                                                          serve_agent, NULL,           false };

struct box_target box_target_make(struct box *box) {
        return (struct box_target) { { &box_target_type }, box };
}
