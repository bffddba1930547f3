/* Every row of the API, and what runs for it. */
#pragma once

#include "api/route.h"

extern const struct api_routes api_routes;

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

/* health.c */
void health_show(struct exchange *exchange);
void health_describe(struct exchange *exchange);
