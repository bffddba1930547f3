/* Every row of the API, and what runs for it. */
#pragma once

#include "api/route.h"

extern const struct api_routes api_routes;
extern const struct api_schema api_schemas[];

struct api_request;

/* sandbox.c */
void sandbox_create(struct api_request *api_request);
void sandbox_list(struct api_request *api_request);
void sandbox_show(struct api_request *api_request);
void sandbox_destroy(struct api_request *api_request);
void sandbox_interrupt(struct api_request *api_request);
void sandbox_restart(struct api_request *api_request);
void sandbox_hibernate(struct api_request *api_request);
void sandbox_isolation(struct api_request *api_request);

/* execution.c */
void execution_execute(struct api_request *api_request);
void execution_one_shot(struct api_request *api_request);
void execution_shell(struct api_request *api_request);
void execution_install(struct api_request *api_request);
void execution_list(struct api_request *api_request);
void execution_show(struct api_request *api_request);
void execution_events(struct api_request *api_request);
void execution_cancel(struct api_request *api_request);

/* file.c */
void file_read(struct api_request *api_request);
void file_write(struct api_request *api_request);
void file_remove(struct api_request *api_request);

/* artifact.c */
void artifacts_list(struct api_request *api_request);
void artifacts_download(struct api_request *api_request);
void artifacts_zip(struct api_request *api_request);

/* channel.c */
void channel_open(struct api_request *api_request);

/* mcp.c */
void mcp_post(struct api_request *api_request);

/* health.c */
void health_show(struct api_request *api_request);
void health_describe(struct api_request *api_request);

/* metrics.c */
void metrics_show(struct api_request *api_request);

/* page.c */
void page_show(struct api_request *api_request);
void page_lead(struct api_request *api_request);
