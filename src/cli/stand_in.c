/* Weak stand-ins for what other branches bring: drop this file (and its line in meson.build) once they are merged. */
#include <stdio.h>
#include <string.h>

#include "cli/run_request.h"
#include "cli/verb.h"

__attribute__((weak)) int run_execute(const struct run_request *request, struct err *err) {
        if (strcmp(request->image, "host") != 0)
                return err_set(err, ERR_NOT_FOUND, "there is no image %s; \"glovebox image list\" shows what there is",
                               request->image);
        for (size_t i = 0; i < request->n_mounts; i++)
                if (strcmp(request->mounts[i].source, "/etc") == 0)
                        return err_set(err, ERR_REFUSED, "%s is never mountable", request->mounts[i].source);
        return err_set(err, ERR_UNSUPPORTED, "this build cannot make boxes yet");
}

__attribute__((weak)) int verb_image(int argc, char **argv) {
        (void) argc, (void) argv;
        return 125;
}

__attribute__((weak)) int verb_doctor(int argc, char **argv) {
        (void) argc, (void) argv;
        return 125;
}
