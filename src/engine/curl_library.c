#include "engine/curl_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include "base/memory.h"

#define ROW(name) { "curl_" #name, offsetof(struct curl_library, name) }

static const struct {
        const char *name;
        size_t offset;
} curl_symbols[] = {
        ROW(global_init),
        ROW(easy_init),
        ROW(easy_setopt),
        ROW(easy_getinfo),
        ROW(easy_send),
        ROW(easy_recv),
        ROW(easy_cleanup),
        ROW(easy_strerror),
        ROW(multi_init),
        ROW(multi_setopt),
        ROW(multi_add_handle),
        ROW(multi_remove_handle),
        ROW(multi_socket_action),
        ROW(multi_info_read),
        ROW(multi_assign),
        ROW(url),
        ROW(url_set),
        ROW(url_get),
        ROW(url_cleanup),
};

int curl_library_load(struct curl_library *ret_library, struct err *err) {
        static const char *const names[] = { "libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so" };
        void *library = NULL;
        for (size_t i = 0; i < ELEMENTS(names) && !library; i++)
                library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!library)
                return err_set(err, ERR_UNSUPPORTED,
                               "engine remote needs libcurl, and it is not installed (Debian, Ubuntu: apt-get install "
                               "libcurl4)");
        for (size_t i = 0; i < ELEMENTS(curl_symbols); i++) {
                void *symbol = dlsym(library, curl_symbols[i].name);
                if (!symbol)
                        return err_set(err, ERR_UNSUPPORTED, "the libcurl of this host is too old: it lacks %s",
                                       curl_symbols[i].name);
                memcpy((char *) ret_library + curl_symbols[i].offset, &symbol, sizeof(symbol));
        }
        return 0;
}
