/* The host image's layer of Python packages. A new one is built beside the old one and replaces it atomically; it
 * belongs to one minor version of Python, because compiled packages do. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "image/pip.h"
#include "image/python.h"

/* Below images/host. The record lies inside the layer, so that both change at the same instant. */
#define LAYER_DIR "python"
#define LAYER_RECORD ".glovebox.json"

/* Opens the layer (O_PATH) below images/host; *ret_fd is -1 when there is none. A layer made for another Python than
 * this one is an error that says what to do. */
int layer_open(int host_fd, const struct python *python, int *ret_fd, struct err *err);

/* The layer's record: python, interpreter, created, requested, packages, bytes, entries. */
int layer_describe(int host_fd, json_t **ret_record, struct err *err);

struct layer_request {
        const char *const *packages; /* requirement specifiers; none and no file: the scientific stack */
        size_t n_packages;
        const char *requirements; /* a file, or NULL */
        bool allow_source;
        pip_report *report;
        void *context;
};

/* Whole or not at all, Ctrl-C included. *ret_record as from layer_describe. */
int layer_build(const char *data_dir, const struct layer_request *request, json_t **ret_record, struct err *err);
