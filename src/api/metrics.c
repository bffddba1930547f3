/* GET /metrics, in Prometheus' text format. One table; a row is one number, or writes its own lines if it has labels. A
 * client with a key sees the service's totals and the key's own share; the operator, on the UNIX socket, the share of
 * every key. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "api/api_request.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/memory.h"
#include "daemon/daemon.h"
#include "session/kernel_pool.h"
#include "session/serve_options.h"
#include "session/session.h"

struct metric;

/* The input and the output of a row. */
struct metrics_view {
        FILE *out;
        const struct service *service;
        const struct daemon *daemon;
        const struct session_manager *manager;
        const struct http_counters *http;
        const char *owner; /* "": the operator */
};

struct metric {
        const char *name, *type, *help;
        double (*value)(const struct metrics_view *view);
        void (*lines)(const struct metrics_view *view, const struct metric *metric); /* instead of value */
};

static void metrics_put(const struct metrics_view *view, const char *name, const char *label, const char *text,
                        double value) {
        if (label)
                (void) fprintf(view->out, "%s{%s=\"%s\"} %.15g\n", name, label, text, value);
        else
                (void) fprintf(view->out, "%s %.15g\n", name, value);
}

/* ---- the process ---- */

static double memory_bytes(const struct metrics_view *view) {
        (void) view;
        unsigned long pages = 0;
        FILE *file = fopen("/proc/self/statm", "re");
        if (file) {
                if (fscanf(file, "%*u %lu", &pages) != 1)
                        pages = 0;
                (void) fclose(file);
        }
        return (double) pages * (double) sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(const struct metrics_view *view) {
        (void) view;
        struct rusage usage;
        if (getrusage(RUSAGE_SELF, &usage) < 0)
                return 0;
        return (double) (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double) (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double longest_turn_seconds(const struct metrics_view *view) {
        return (double) loop_turns(view->manager->loop).longest_us / 1e6;
}

static double longest_turn_cpu_seconds(const struct metrics_view *view) {
        return (double) loop_turns(view->manager->loop).longest_cpu_us / 1e6;
}

static double uptime_seconds(const struct metrics_view *view) {
        return (double) (loop_now_ms() - view->manager->started_ms) / 1000;
}

static void build_lines(const struct metrics_view *view, const struct metric *metric) {
        metrics_put(view, metric->name, "version", GLOVEBOX_VERSION, 1);
}

/* ---- sandboxes and kernels ---- */

static void session_lines(const struct metrics_view *view, const struct metric *metric) {
        static const char *const names[] = { "new", "idle", "running", "trimmed", "asleep", "lost" };
        unsigned n[ELEMENTS(names)] = { 0 };
        for (const struct session *session = view->manager->sessions; session; session = session->next)
                if (!session->ephemeral && !session_is_going(session) && session->state < ELEMENTS(names))
                        n[session->state]++;
        for (size_t i = 0; i < ELEMENTS(names); i++)
                metrics_put(view, metric->name, "state", names[i], n[i]);
}

static double sandboxes_max(const struct metrics_view *view) {
        return (double) view->service->settings->sandboxes_max;
}

static double pool_should_hold(const struct metrics_view *view) {
        return (double) (kernel_pool_wanted(view->manager, false) + kernel_pool_wanted(view->manager, true));
}

static double pool_holds(const struct metrics_view *view) {
        return (double) (kernel_pool_ready(view->manager, false) + kernel_pool_ready(view->manager, true));
}

static void kernel_lines(const struct metrics_view *view, const struct metric *metric) {
        const struct counters *counters = &view->manager->counters;
        metrics_put(view, metric->name, "how", "forked", (double) counters->kernels_forked);
        metrics_put(view, metric->name, "how", "cold", (double) counters->kernels_cold);
        metrics_put(view, metric->name, "how", "failed", (double) counters->kernels_failed);
}

static double orders_waiting(const struct metrics_view *view) {
        return (double) view->manager->n_orders;
}

static double orders_given(const struct metrics_view *view) {
        return (double) view->manager->n_ordered;
}

/* ---- runs ---- */

static double runs_started(const struct metrics_view *view) {
        return (double) view->manager->counters.runs_started;
}

static void run_lines(const struct metrics_view *view, const struct metric *metric) {
        for (size_t i = 0; i < COUNTERS_ENDS; i++)
                metrics_put(view, metric->name, "status", counters_end_names[i],
                            (double) view->manager->counters.runs_ended[i]);
}

static void duration_lines(const struct metrics_view *view, const struct metric *metric) {
        const struct counters *counters = &view->manager->counters;
        char bucket[80], sum[80], count[80], bound[32];
        uint64_t n = 0;
        (void) snprintf(bucket, sizeof(bucket), "%s_bucket", metric->name);
        (void) snprintf(sum, sizeof(sum), "%s_sum", metric->name);
        (void) snprintf(count, sizeof(count), "%s_count", metric->name);
        for (size_t i = 0; i <= COUNTERS_SPANS; i++) {
                if (i < COUNTERS_SPANS)
                        (void) snprintf(bound, sizeof(bound), "%g", (double) counters_spans_us[i] / 1e6);
                n += counters->runs_within[i];
                metrics_put(view, bucket, "le", i < COUNTERS_SPANS ? bound : "+Inf", (double) n);
        }
        metrics_put(view, sum, NULL, NULL, (double) counters->run_us / 1e6);
        metrics_put(view, count, NULL, NULL, (double) n);
}

static double runs_waiting(const struct metrics_view *view) {
        unsigned n = 0;
        for (const struct session *session = view->manager->sessions; session; session = session->next)
                for (const struct run *run = session->runs; run; run = run->next)
                        n += !run->started;
        return n;
}

static double spilled_bytes(const struct metrics_view *view) {
        return (double) share_used(&view->manager->shares, SHARE_SPILL, NULL);
}

/* ---- the service ---- */

static double metric_clients(const struct metrics_view *view) {
        return (double) view->daemon->n_clients;
}

static void connection_lines(const struct metrics_view *view, const struct metric *metric) {
        metrics_put(view, metric->name, "outcome", "accepted", (double) view->http->accepted);
        metrics_put(view, metric->name, "outcome", "turned_away", (double) view->http->turned_away);
}

static double connections_open(const struct metrics_view *view) {
        return (double) view->http->open;
}

static double api_requests(const struct metrics_view *view) {
        unsigned n = 0;
        for (const struct api_request *api_request = view->service->api_requests; api_request;
             api_request = api_request->next)
                n++;
        return n;
}

static double metric_requests(const struct metrics_view *view) {
        return (double) view->http->requests;
}

static double metric_streams(const struct metrics_view *view) {
        return (double) view->service->counted.streams;
}

static void refused_lines(const struct metrics_view *view, const struct metric *metric) {
        metrics_put(view, metric->name, "reason", "malformed", (double) view->http->refused);
        metrics_put(view, metric->name, "reason", "slow", (double) view->http->timeouts);
        metrics_put(view, metric->name, "reason", "unauthorized", (double) view->service->counted.unauthorized);
        metrics_put(view, metric->name, "reason", "quota", (double) view->service->counted.turned_away);
}

static void byte_lines(const struct metrics_view *view, const struct metric *metric) {
        metrics_put(view, metric->name, "direction", "in", (double) view->http->bytes_in);
        metrics_put(view, metric->name, "direction", "out", (double) view->http->bytes_out);
}

/* ---- keys ---- */

/* Names of keys are letters, digits, "-" and "_": nothing in them needs to be escaped. */
static bool is_shown(const struct metrics_view *view, const char *key) {
        return !*view->owner || strcmp(view->owner, key) == 0;
}

static void key_sandbox_lines(const struct metrics_view *view, const struct metric *metric) {
        for (size_t i = 0; i < view->service->keys.n; i++) {
                const char *key = view->service->keys.keys[i].name;
                if (is_shown(view, key))
                        metrics_put(view, metric->name, "key", key, service_count_sandboxes(view->service, key));
        }
}

static void key_run_lines(const struct metrics_view *view, const struct metric *metric) {
        for (const struct quota_use *use = view->service->uses.uses; use; use = use->next)
                if (is_shown(view, use->owner))
                        metrics_put(view, metric->name, "key", use->owner,
                                    (double) share_used(&view->manager->shares, SHARE_RUNS, use->owner));
}

/* ---- the table ---- */

static const struct metric metrics[] = {
        { "glovebox_build_info", "gauge", "Always 1; the label says which version runs.", .lines = build_lines },
        { "glovebox_uptime_seconds", "gauge", "Since the daemon began.", .value = uptime_seconds },
        { "process_resident_memory_bytes", "gauge", "Memory of the daemon itself.", .value = memory_bytes },
        { "process_cpu_seconds_total", "counter", "Processor time of the daemon itself.", .value = cpu_seconds },

        { "glovebox_longest_turn_seconds", "gauge", "The longest that the daemon's loop has kept others waiting.",
          .value = longest_turn_seconds },
        { "glovebox_longest_turn_cpu_seconds", "gauge", "The most processor time of one turn of the daemon's loop.",
          .value = longest_turn_cpu_seconds },

        { "glovebox_sandboxes", "gauge", "Sandboxes and sessions, by state.", .lines = session_lines },
        { "glovebox_sandboxes_max", "gauge", "Sandboxes that all keys together may have.", .value = sandboxes_max },
        { "glovebox_key_sandboxes", "gauge", "Sandboxes of a key.", .lines = key_sandbox_lines },
        { "glovebox_key_runs", "gauge", "Runs of a key that are under way.", .lines = key_run_lines },
        { "glovebox_pool_wanted", "gauge", "Kernels that the pool should hold ready.", .value = pool_should_hold },
        { "glovebox_pool_ready", "gauge", "Kernels that the pool holds ready.", .value = pool_holds },
        { "glovebox_kernels_started_total", "counter", "Kernels made, by how they started.", .lines = kernel_lines },
        { "glovebox_orders_waiting", "gauge", "Kernels that wait to be made.", .value = orders_waiting },
        { "glovebox_orders_given", "gauge", "Kernels that are being made.", .value = orders_given },

        { "glovebox_runs_started_total", "counter", "Runs that were given to a kernel.", .value = runs_started },
        { "glovebox_runs_finished_total", "counter", "Runs that ended, by status.", .lines = run_lines },
        { "glovebox_run_duration_seconds", "histogram", "How long runs took.", .lines = duration_lines },
        { "glovebox_runs_waiting", "gauge", "Runs that wait for their sandbox.", .value = runs_waiting },
        { "glovebox_spilled_bytes", "gauge", "Output on disk, for slow clients.", .value = spilled_bytes },

        { "glovebox_clients", "gauge", "Connections to the daemon's own socket.", .value = metric_clients },
        { "glovebox_http_connections", "gauge", "HTTP connections that are open.", .value = connections_open },
        { "glovebox_http_connections_total", "counter", "HTTP connections.", .lines = connection_lines },
        { "glovebox_http_requests_total", "counter", "HTTP requests whose head was good.", .value = metric_requests },
        { "glovebox_http_requests_open", "gauge", "Requests under way, and runs whose client has left.",
          .value = api_requests },
        { "glovebox_http_streams_total", "counter", "Answers that were streams of events.", .value = metric_streams },
        { "glovebox_http_refused_total", "counter", "HTTP requests refused, by reason.", .lines = refused_lines },
        { "glovebox_http_bytes_total", "counter", "Bytes over HTTP.", .lines = byte_lines },
};

void metrics_show(struct api_request *api_request) {
        _cleanup_free_ char *text = NULL;
        size_t size = 0;
        const struct service *service = api_request->service;
        struct metrics_view view = { .out = open_memstream(&text, &size),
                                     .service = service,
                                     .daemon = service->daemon,
                                     .manager = service->manager,
                                     .http = http_server_counters(service->server),
                                     .owner = api_request->visitor.owner };
        for (size_t i = 0; view.out && i < ELEMENTS(metrics); i++) {
                const struct metric *metric = &metrics[i];
                (void) fprintf(view.out, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name,
                               metric->type);
                if (metric->lines)
                        metric->lines(&view, metric);
                else
                        metrics_put(&view, metric->name, NULL, NULL, metric->value(&view));
        }
        if (view.out && fclose(view.out) == 0)
                api_request_answer_bytes(api_request, 200, "text/plain; version=0.0.4; charset=utf-8", text, size);
        else
                api_request_problem(api_request, 503, "busy", "the service is out of memory", NULL);
}
