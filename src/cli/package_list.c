#include "cli/package_list.h"

#include <string.h>

size_t package_list_split(char *text, const char **ret_packages, size_t max) {
        size_t n = 0;
        for (char *at = text; *at && n < max;) {
                at += strspn(at, ", \t\n");
                if (!*at)
                        break;
                ret_packages[n++] = at;
                do
                        at += strcspn(at + (*at == ','), ", \t\n") + (*at == ',');
                while (*at == ',' && at[1] && strchr("<>=!~", at[1]));
                if (*at)
                        *at++ = '\0';
        }
        return n;
}
