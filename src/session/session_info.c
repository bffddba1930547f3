#include "session/session_info.h"

#include <stdio.h>

#include "session/held_back.h"
#include "session/session.h"
#include "session/session_engine.h"

struct session_info session_info_of(const struct session *session) {
        const struct registry_session *row = &session->row;
        struct cgroup_usage usage = { 0 };
        if (session->kernel && session->kernel->cgroup.host)
                cgroup_read_usage(&session->kernel->cgroup, &usage);
        struct session_info info = { .id = row->id,
                                     .name = row->name,
                                     .state = session_state_name(session),
                                     .image = row->image,
                                     .mode = row->mode,
                                     .owner = row->owner,
                                     .workspace = session->workspace,
                                     .created_ms = (int64_t) row->created_ms,
                                     .used_ms = (int64_t) row->used_ms,
                                     .memory_bytes = usage.memory_now_bytes,
                                     .cpu_ms = usage.cpu_us / 1000,
                                     .pid = session->kernel ? session->kernel->pid : 0,
                                     .allow_weaker = row->allow_weaker,
                                     .limits = row->limits,
                                     .held_back = session->held_back };
        struct session_engine engine = session_engine_of(row);
        (void) snprintf(info.engine, sizeof(info.engine), "%s", *engine.name ? engine.name : "native");
        return info;
}

static json_t *limits_to_json(const struct limits *limits) {
        return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "memory_bytes", (json_int_t) limits->memory_bytes,
                         "cpus", (double) limits->cpu_thousandths / 1000, "pids", (json_int_t) limits->pids,
                         "timeout_ms", (json_int_t) limits->timeout_ms, "tmp_bytes", (json_int_t) limits->tmp_bytes,
                         "disk_bytes", (json_int_t) limits->disk_bytes, "disk_files", (json_int_t) limits->disk_files);
}

json_t *session_info_to_json(const struct session_info *info, const struct session_info_form *form) {
        json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:o}", "id", info->id,
                                 form->name_key ? form->name_key : "name", info->name, "state", info->state, "image",
                                 info->image, "mode", info->mode, "created", (json_int_t) info->created_ms, "used",
                                 (json_int_t) info->used_ms, "memory_bytes", (json_int_t) info->memory_bytes, "cpu_ms",
                                 (json_int_t) info->cpu_ms, "allow_weaker", (int) info->allow_weaker, "limits",
                                 limits_to_json(&info->limits));
        if (!json)
                return json_object();
        json_object_set_new(json, "engine", json_string(info->engine));
        if (!form->hides_host) {
                json_object_set_new(json, "workspace", json_string(info->workspace));
                json_object_set_new(json, "pid", json_integer((json_int_t) info->pid));
        }
        if (*info->owner)
                json_object_set_new(json, "key", json_string(info->owner));
        if (info->held_back)
                json_object_set_new(json, "held_back",
                                    form->is_brief ? held_back_brief(info->held_back) : json_incref(info->held_back));
        return json;
}
