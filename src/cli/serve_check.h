/* Settings of `glovebox serve` that cannot work are refused when it starts. */
#pragma once

#include "api/service.h"
#include "base/err.h"
#include "session/serve_options.h"

/* Before the upper limits are set: 0 in them means that none was given. */
int serve_check(const struct serve_options *options, const struct service_settings *service, struct err *err);
