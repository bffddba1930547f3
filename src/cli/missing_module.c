#include "cli/missing_module.h"

#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "image/standard_packages.h"

/* The same as PACKAGES in guest/kernel/glovebox_kernel/magics.py; a test compares them. */
static const struct {
        const char *module, *package;
} packages[] = {
        { "PIL", "pillow" },
        { "bs4", "beautifulsoup4" },
        { "cv2", "opencv-python-headless" },
        { "dateutil", "python-dateutil" },
        { "dotenv", "python-dotenv" },
        { "skimage", "scikit-image" },
        { "sklearn", "scikit-learn" },
        { "yaml", "pyyaml" },
};

/* Distributions put these into packages of their own, or later versions of Python have dropped them. */
static const char *const pythons_own[] = {
        "_bz2", "_ctypes",   "_curses",   "_dbm",    "_gdbm", "_lzma",   "_sqlite3", "_ssl",    "_tkinter", "curses",
        "dbm",  "distutils", "ensurepip", "idlelib", "imp",   "lib2to3", "readline", "tkinter", "turtle",   "venv",
};

const char *missing_module_package(const char *module) {
        for (size_t i = 0; i < ELEMENTS(pythons_own); i++)
                if (strcmp(module, pythons_own[i]) == 0)
                        return NULL;
        for (size_t i = 0; i < ELEMENTS(packages); i++)
                if (strcmp(module, packages[i].module) == 0)
                        return packages[i].package;
        return module;
}

bool missing_module_is_standard(const char *package) {
        size_t size = strlen(package);
        for (const char *at = standard_packages; at < standard_packages_end;) {
                const char *end = memchr(at, '\n', (size_t) (standard_packages_end - at));
                size_t line = (size_t) ((end ? end : standard_packages_end) - at);
                if (line >= size && strncasecmp(at, package, size) == 0 &&
                    (line == size || strchr("=<>~![; ", at[size])))
                        return true;
                at += line + 1;
        }
        return false;
}
