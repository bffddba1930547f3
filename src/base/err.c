#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
        const char *name;
        int http_status;
        int exit_status;
} codes[ERR_CODES] = {
        [ERR_NONE] = { "none", 200, 0 },
        [ERR_USAGE] = { "usage", 400, 2 },
        [ERR_NOT_FOUND] = { "not_found", 404, 125 },
        [ERR_EXISTS] = { "exists", 409, 125 },
        [ERR_REFUSED] = { "refused", 403, 125 },
        [ERR_UNSUPPORTED] = { "unsupported", 501, 125 },
        [ERR_LIMIT] = { "limit", 429, 125 },
        [ERR_BUSY] = { "busy", 409, 125 },
        [ERR_NO_SPACE] = { "no_space", 507, 125 },
        [ERR_PERMISSION] = { "permission", 403, 125 },
        [ERR_PROTOCOL] = { "protocol", 400, 125 },
        [ERR_GONE] = { "gone", 410, 125 },
        [ERR_TIMEOUT] = { "timeout", 504, 125 },
        [ERR_DAMAGED] = { "damaged", 500, 125 },
        [ERR_SYSTEM] = { "system", 500, 125 },
};

static const struct {
        int sys_errno;
        enum err_code code;
} errnos[] = {
        { ENOENT, ERR_NOT_FOUND },       { ENOTDIR, ERR_NOT_FOUND }, { EEXIST, ERR_EXISTS },
        { EACCES, ERR_PERMISSION },      { EPERM, ERR_PERMISSION },  { ENOSPC, ERR_NO_SPACE },
        { EDQUOT, ERR_NO_SPACE },        { EBUSY, ERR_BUSY },        { ENOSYS, ERR_UNSUPPORTED },
        { EOPNOTSUPP, ERR_UNSUPPORTED }, { ETIMEDOUT, ERR_TIMEOUT },
};

static enum err_code code_of_errno(int sys_errno) {
        for (size_t i = 0; i < sizeof(errnos) / sizeof(errnos[0]); i++)
                if (errnos[i].sys_errno == sys_errno)
                        return errnos[i].code;
        return ERR_SYSTEM;
}

int err_set(struct err *err, enum err_code code, const char *format, ...) {
        if (!err)
                return -1;
        err->code = code;
        err->sys_errno = 0;
        va_list args;
        va_start(args, format);
        (void) vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
        return -1;
}

/* The remedy, for codes that have only one. */
static const char *advice_for(int sys_errno) {
        switch (sys_errno) {
        case EMFILE:
                return "; raise the limit of open files (ulimit -n, or LimitNOFILE= of a systemd unit)";
        case ENFILE:
                return "; the whole host is out of open files (sysctl fs.file-max)";
        default:
                return "";
        }
}

int err_sys(struct err *err, int sys_errno, const char *format, ...) {
        if (!err)
                return -1;
        err->code = code_of_errno(sys_errno);
        err->sys_errno = sys_errno;
        va_list args;
        va_start(args, format);
        int length = vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
        if (length >= 0 && (size_t) length < sizeof(err->message))
                (void) snprintf(err->message + length, sizeof(err->message) - (size_t) length, ": %s%s",
                                strerror(sys_errno), advice_for(sys_errno));
        return -1;
}

bool err_is_shortage(const struct err *err) {
        return err->sys_errno == EMFILE || err->sys_errno == ENFILE || err->sys_errno == ENOMEM ||
               err->sys_errno == ENOBUFS;
}

int err_prefix(struct err *err, const char *format, ...) {
        if (!err)
                return -1;
        char old[sizeof(err->message)];
        memcpy(old, err->message, sizeof(old));
        va_list args;
        va_start(args, format);
        int length = vsnprintf(err->message, sizeof(err->message), format, args);
        va_end(args);
        if (length < 0 || (size_t) length + 3 > sizeof(err->message))
                return -1;
        size_t room = sizeof(err->message) - (size_t) length - 3;
        char *end = stpcpy(err->message + length, ": ");
        *stpncpy(end, old, room) = '\0';
        return -1;
}

const char *err_code_name(enum err_code code) {
        return code < ERR_CODES ? codes[code].name : "unknown";
}

int err_code_http_status(enum err_code code) {
        return code < ERR_CODES ? codes[code].http_status : 500;
}

int err_code_exit_status(enum err_code code) {
        return code < ERR_CODES ? codes[code].exit_status : 125;
}
