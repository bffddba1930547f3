/* Status codes and what they are called. */
#pragma once

const char *http_status_reason(int status);
