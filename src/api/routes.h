/* Every row of the API, and what runs for it. */
#pragma once

#include "api/route.h"

extern const struct api_routes api_routes;
extern const struct api_schema api_schemas[];

struct exchange;

/* sandbox.c */
void sandbox_create(struct exchange *exchange);
void sandbox_list(struct exchange *exchange);
void sandbox_show(struct exchange *exchange);
void sandbox_destroy(struct exchange *exchange);
void sandbox_interrupt(struct exchange *exchange);
void sandbox_restart(struct exchange *exchange);
void sandbox_hibernate(struct exchange *exchange);
void sandbox_isolation(struct exchange *exchange);

/* execution.c */
void execution_execute(struct exchange *exchange);
void execution_shell(struct exchange *exchange);
void execution_list(struct exchange *exchange);
void execution_show(struct exchange *exchange);
void execution_events(struct exchange *exchange);
void execution_cancel(struct exchange *exchange);

/* file.c */
void file_read(struct exchange *exchange);
void file_write(struct exchange *exchange);
void file_remove(struct exchange *exchange);

/* artifact.c */
void artifacts_list(struct exchange *exchange);
void artifacts_download(struct exchange *exchange);
void artifacts_zip(struct exchange *exchange);

/* health.c */
void health_show(struct exchange *exchange);
void health_describe(struct exchange *exchange);

/* metrics.c */
void metrics_show(struct exchange *exchange);

/* page.c */
void page_show(struct exchange *exchange);
void page_lead(struct exchange *exchange);
