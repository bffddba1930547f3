/* Files of a sandbox as resources: glovebox://SANDBOX/PATH, the path below /workspace, percent-encoded. */
#pragma once

/* A fresh text, or NULL: out of memory. */
char *resource_make_uri(const char *sandbox, const char *relative);
