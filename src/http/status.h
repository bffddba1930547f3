/* Status codes and their names. */
#pragma once

const char *http_status_reason(int status);
