/* Turns: a request and its answer, again and again, as long as nothing is unusual.
 *
 * Python takes most of the time that a short run takes for what is around it: frames, JSON, streams, signals. A kernel
 * waits here for requests instead. What asks for nothing but that code be run is run here, by the same objects that
 * Python's own loop uses (glovebox_kernel/main.py, runner.py), whose word on each of these steps counts. Whatever is
 * more than that goes back to them: other requests as they came, and the end of a run that failed, that shows
 * something, or whose value is more than a number.
 *
 * No header of Python is needed to build this, so that one library serves every Python: the few functions used are part
 * of its stable interface. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "turn.h"

typedef ptrdiff_t Py_ssize_t;
typedef struct _object PyObject;
typedef struct _ts PyThreadState;
/* Weak: the library must also load where no Python is yet. */
extern PyObject __attribute__((weak)) _Py_NoneStruct, _Py_TrueStruct, _Py_FalseStruct, PyLong_Type, PyFloat_Type,
        PyBool_Type;
void Py_IncRef(PyObject *object);
void Py_DecRef(PyObject *object);
PyObject *PyObject_Type(PyObject *object);
PyObject *PyObject_GetAttr(PyObject *object, PyObject *name);
int PyObject_SetAttr(PyObject *object, PyObject *name, PyObject *value);
int PyObject_IsTrue(PyObject *object);
PyObject *PyObject_Repr(PyObject *object);
PyObject *PyObject_CallFunctionObjArgs(PyObject *callable, ...);
PyObject *PyObject_CallMethodObjArgs(PyObject *object, PyObject *name, ...);
PyObject *PyBytes_FromStringAndSize(const char *bytes, Py_ssize_t size);
int PyBytes_AsStringAndSize(PyObject *object, char **ret_bytes, Py_ssize_t *ret_size);
PyObject *PyUnicode_DecodeUTF8(const char *bytes, Py_ssize_t size, const char *errors);
PyObject *PyUnicode_InternFromString(const char *text);
int PyUnicode_Compare(PyObject *one, PyObject *other);
PyObject *PyUnicode_AsUTF8String(PyObject *text);
Py_ssize_t PyUnicode_GetLength(PyObject *text);
PyObject *PyTuple_GetItem(PyObject *tuple, Py_ssize_t index);
PyObject *PyList_GetItem(PyObject *list, Py_ssize_t index);
Py_ssize_t PyList_Size(PyObject *list);
PyObject *PyDict_GetItem(PyObject *dict, PyObject *key);
int PyDict_SetItem(PyObject *dict, PyObject *key, PyObject *value);
PyObject *PyLong_FromLong(long number);
long PyLong_AsLong(PyObject *object);
PyObject *PyEval_EvalCode(PyObject *code, PyObject *globals, PyObject *locals);
PyObject *PyModule_GetDict(PyObject *module);
PyObject *PyImport_GetModuleDict(void);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
int PyErr_CheckSignals(void);
void PyErr_Fetch(PyObject **ret_type, PyObject **ret_value, PyObject **ret_trace);
void PyErr_NormalizeException(PyObject **type, PyObject **value, PyObject **trace);
int PyException_SetTraceback(PyObject *error, PyObject *trace);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *state);

enum {
        HEADER_SIZE = 8,
        REQUEST_MAX = 8 << 10, /* larger ones are Python's */
        ANSWER_MAX = 1 << 10,
        ID_MAX = 64,
        EXECUTE = 1,
        RESULT = 129,
};

/* What Python's loop works with, in the order in which turns.py hands it over. */
enum part {
        PART_CELLS,    /* CellCompiler */
        PART_CACHE,    /* its dictionary: source -> Cell */
        PART_RUNNER,   /* Runner */
        PART_GATE,     /* Gate */
        PART_CONTEXTS, /* the dictionary of ContextTable */
        PART_TRIMMER,  /* Trimmer */
        PART_STDIO,    /* Stdio */
        PART_STREAMS,  /* its list of two */
        PART_SYS,      /* the dictionary of sys */
        PART_FLOODED,  /* its list of those that are in a flood */
        PART_FIGURES,  /* the module */
        PART_HANDLER,  /* of SIGINT */
        PART_GETSIGNAL,
        PART_BUILTINS, /* their dictionary */
        PARTS,
};

enum name {
        NAME_ARMED,
        NAME_BODY,
        NAME_COMPILE,
        NAME_CONCLUDE,
        NAME_COUNT,
        NAME_DEFAULT,
        NAME_DISPLAYS,
        NAME_FLUSH,
        NAME_IS_ASYNC,
        NAME_IS_TRIMMED,
        NAME_LAST,
        NAME_LAST_ID,
        NAME_MAIN,
        NAME_MODULE,
        NAME_OURS,
        NAME_PENDING,
        NAME_PID,
        NAME_REGISTRY,
        NAME_REPAIR,
        NAME_RUN_ID,
        NAME_SHIELDED,
        NAME_SHOW,
        NAME_STDERR,
        NAME_STDOUT,
        NAME_STRUCK,
        NAME_UNDERSCORE,
        NAMES,
};

static const char *const spelled[NAMES] = {
        [NAME_ARMED] = "armed",
        [NAME_BODY] = "body",
        [NAME_COMPILE] = "compile",
        [NAME_CONCLUDE] = "conclude",
        [NAME_COUNT] = "count",
        [NAME_DEFAULT] = "default",
        [NAME_DISPLAYS] = "displays",
        [NAME_FLUSH] = "flush",
        [NAME_IS_ASYNC] = "is_async",
        [NAME_IS_TRIMMED] = "is_trimmed",
        [NAME_LAST] = "last",
        [NAME_LAST_ID] = "last_id",
        [NAME_MAIN] = "__main__",
        [NAME_MODULE] = "module",
        [NAME_OURS] = "__glovebox_last__",
        [NAME_PENDING] = "pending",
        [NAME_PID] = "pid",
        [NAME_REGISTRY] = "registry",
        [NAME_REPAIR] = "repair",
        [NAME_RUN_ID] = "run_id",
        [NAME_SHIELDED] = "shielded",
        [NAME_SHOW] = "show",
        [NAME_STDERR] = "stderr",
        [NAME_STDOUT] = "stdout",
        [NAME_STRUCK] = "struck",
        [NAME_UNDERSCORE] = "_",
};

static PyObject *parts[PARTS], *names[NAMES], *zero, *sigint;

#define none (&_Py_NoneStruct)
#define yes (&_Py_TrueStruct)
#define no (&_Py_FalseStruct)

static void drop(PyObject **object) {
        if (*object)
                Py_DecRef(*object);
}
#define _cleanup_object_ __attribute__((cleanup(drop)))

int turn_open(PyObject *given) {
        for (int i = 0; i < PARTS; i++) {
                PyObject *part = PyTuple_GetItem(given, i);
                if (!part)
                        return -1;
                Py_IncRef(part);
                drop(&parts[i]); /* of a kernel that only practised */
                parts[i] = part;
        }
        for (int i = 0; i < NAMES; i++)
                if (!names[i] && !(names[i] = PyUnicode_InternFromString(spelled[i])))
                        return -1;
        if (!zero)
                zero = PyLong_FromLong(0);
        if (!sigint)
                sigint = PyLong_FromLong(SIGINT);
        return zero && sigint ? 0 : -1;
}

static bool set(enum part part, enum name name, PyObject *value) {
        return PyObject_SetAttr(parts[part], names[name], value) == 0;
}

static bool is_of(PyObject *value, const PyObject *kind) {
        _cleanup_object_ PyObject *type = PyObject_Type(value);
        return type == kind;
}

/* ---- the request ---- */

struct request {
        PyObject *id, *code;
        char id_text[ID_MAX + 1];
};

static void release(struct request *request) {
        drop(&request->id);
        drop(&request->code);
}

/* What is left of a request that is being read. */
struct rest {
        const char *at, *end;
};

static bool skip(struct rest *rest, const char *literal, size_t size) {
        if ((size_t) (rest->end - rest->at) < size || memcmp(rest->at, literal, size) != 0)
                return false;
        rest->at += size;
        return true;
}
#define skip_literal(rest, literal) skip(rest, "" literal, sizeof(literal) - 1)

/* What stands for itself in JSON: a host's ids do. */
static bool read_id(struct rest *rest, char ret_id[static ID_MAX + 1]) {
        size_t size = 0;
        for (; rest->at < rest->end && size < ID_MAX; rest->at++, size++) {
                char byte = *rest->at;
                if (!((byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                      byte == '-' || byte == '_'))
                        break;
                ret_id[size] = byte;
        }
        ret_id[size] = '\0';
        return size > 0;
}

/* A string up to its closing quote. What has an escape beyond the short ones is for Python. */
static PyObject *read_string(struct rest *rest) {
        static char plain[REQUEST_MAX];
        static const char meant[128] = { ['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                         ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t' };
        const char *start = rest->at, *text = start;
        size_t size = 0;
        for (; rest->at < rest->end && *rest->at != '"'; rest->at++) {
                if ((unsigned char) *rest->at < ' ')
                        return NULL;
                if (*rest->at != '\\') {
                        if (text == plain)
                                plain[size] = *rest->at;
                        size++;
                        continue;
                }
                if (text != plain)
                        text = memcpy(plain, start, size);
                unsigned char escaped = ++rest->at < rest->end ? (unsigned char) *rest->at : 0;
                if (escaped >= sizeof(meant) || !meant[escaped])
                        return NULL;
                plain[size++] = meant[escaped];
        }
        return rest->at < rest->end ? PyUnicode_DecodeUTF8(text, (Py_ssize_t) size, NULL) : NULL;
}

/* Code to be run, and no other wish, as the host writes it. False: it is for Python, also where an exception is set. */
static bool read_request(const char *bytes, size_t size, struct request *ret_request) {
        struct rest rest = { bytes, bytes + size };
        if (!skip_literal(&rest, "{\"id\":\"") || !read_id(&rest, ret_request->id_text) ||
            !skip_literal(&rest, "\",\"code\":\"") || !(ret_request->code = read_string(&rest)) ||
            !skip_literal(&rest, "\"}") || rest.at != rest.end)
                return false;
        ret_request->id = PyUnicode_DecodeUTF8(ret_request->id_text, (Py_ssize_t) strlen(ret_request->id_text), NULL);
        return ret_request->id != NULL;
}

/* ---- the run ---- */

static PyObject *evaluate(PyObject *cell, enum name part, PyObject *space) {
        _cleanup_object_ PyObject *code = PyObject_GetAttr(cell, names[part]);
        if (!code)
                return NULL;
        if (code == none) {
                Py_IncRef(none);
                return none;
        }
        return PyEval_EvalCode(code, space, space);
}

/* As Runner._execute: the value of the last expression, or NULL and an exception. */
static PyObject *execute(PyObject *source, PyObject *space, bool *ret_is_async) {
        _cleanup_object_ PyObject *cell = PyDict_GetItem(parts[PART_CACHE], source);
        if (cell)
                Py_IncRef(cell);
        else
                cell = PyObject_CallMethodObjArgs(parts[PART_CELLS], names[NAME_COMPILE], source, NULL);
        _cleanup_object_ PyObject *is_async = cell ? PyObject_GetAttr(cell, names[NAME_IS_ASYNC]) : NULL;
        if (!is_async)
                return NULL;
        if (is_async == yes) {
                *ret_is_async = true;
                return NULL;
        }
        _cleanup_object_ PyObject *nothing = evaluate(cell, NAME_BODY, space);
        return nothing ? evaluate(cell, NAME_LAST, space) : NULL;
}

/* As Gate.run_guarded. A signal that comes when the code has ended finds nobody armed: its handler is Python, and runs
 * when Python runs next. */
static bool arm(void) {
        return set(PART_GATE, NAME_STRUCK, no) && set(PART_GATE, NAME_PENDING, no) &&
               set(PART_GATE, NAME_SHIELDED, zero) && set(PART_GATE, NAME_ARMED, yes);
}

/* The exception that is set, as an object that has its traceback. */
static PyObject *take_failure(void) {
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        if (trace && value)
                (void) PyException_SetTraceback(value, trace);
        drop(&type);
        drop(&trace);
        return value;
}

/* ---- the answer ---- */

static bool send_all(int fd, const char *bytes, size_t size) {
        while (size > 0) {
                ssize_t n = write(fd, bytes, size);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return false;
                bytes += n;
                size -= (size_t) n;
        }
        return true;
}

static void put_header(char header[static HEADER_SIZE], size_t size) {
        const unsigned char bytes[HEADER_SIZE] = { size & 0xff, size >> 8 & 0xff, size >> 16 & 0xff, size >> 24 & 0xff,
                                                   RESULT };
        memcpy(header, bytes, HEADER_SIZE);
}

/* A number's text is plain ASCII. NULL: the value has no such text, or it is too long for here. */
static PyObject *number_text(PyObject *value) {
        enum { DIGITS_MAX = 500 };
        if (!is_of(value, &PyLong_Type) && !is_of(value, &PyFloat_Type) && !is_of(value, &PyBool_Type))
                return NULL;
        _cleanup_object_ PyObject *text = PyObject_Repr(value);
        if (!text || PyUnicode_GetLength(text) > DIGITS_MAX)
                return NULL;
        return PyUnicode_AsUTF8String(text);
}

struct text {
        char bytes[HEADER_SIZE + ANSWER_MAX];
        size_t size;
};

static void put(struct text *text, const char *bytes, size_t size) {
        if (size <= sizeof(text->bytes) - text->size) {
                memcpy(text->bytes + text->size, bytes, size);
                text->size += size;
        }
}
#define put_literal(text, literal) put(text, "" literal, sizeof(literal) - 1)

static void put_number(struct text *text, unsigned long number) {
        char digits[24], *at = digits + sizeof(digits);
        do
                *--at = (char) ('0' + number % 10);
        while (number /= 10);
        put(text, at, (size_t) (digits + sizeof(digits) - at));
}

/* As outcome_pack_plain. `digits` is NULL where there is no value. All that is put here has its bounds. */
static bool answer(int fd, const char *id, long count, PyObject *digits, long displays) {
        struct text frame = { .size = HEADER_SIZE };
        put_literal(&frame, "{\"id\":\"");
        put(&frame, id, strlen(id));
        put_literal(&frame, "\",\"status\":\"ok\",\"exit_code\":0,\"execution_count\":");
        put_number(&frame, (unsigned long) count);
        if (digits) {
                char *bytes;
                Py_ssize_t size;
                if (PyBytes_AsStringAndSize(digits, &bytes, &size) < 0)
                        return false;
                put_literal(&frame, ",\"result\":{\"text/plain\":\"");
                put(&frame, bytes, (size_t) size);
                put_literal(&frame, "\"}");
        } else
                put_literal(&frame, ",\"result\":null");
        put_literal(&frame, ",\"displays\":");
        put_number(&frame, (unsigned long) displays);
        put_literal(&frame, ",\"error\":null,\"figures\":[]}");
        put_header(frame.bytes, frame.size - HEADER_SIZE);
        return send_all(fd, frame.bytes, frame.size);
}

/* What Python made of the end of a run. */
static bool answer_with(int fd, PyObject *payload) {
        char header[HEADER_SIZE], *bytes;
        Py_ssize_t size;
        if (!payload || PyBytes_AsStringAndSize(payload, &bytes, &size) < 0)
                return false;
        put_header(header, (size_t) size);
        return send_all(fd, header, sizeof(header)) && send_all(fd, bytes, (size_t) size);
}

static bool call(enum part part, enum name method) {
        _cleanup_object_ PyObject *nothing = PyObject_CallMethodObjArgs(parts[part], names[method], NULL);
        return nothing != NULL;
}

/* As Stdio.flush, for streams that are as they should be. */
static bool flush(void) {
        PyObject *out = PyList_GetItem(parts[PART_STREAMS], 0), *err = PyList_GetItem(parts[PART_STREAMS], 1);
        if (PyDict_GetItem(parts[PART_SYS], names[NAME_STDOUT]) != out ||
            PyDict_GetItem(parts[PART_SYS], names[NAME_STDERR]) != err || PyList_Size(parts[PART_FLOODED]) > 0)
                return call(PART_STDIO, NAME_FLUSH);
        _cleanup_object_ PyObject *first = PyObject_CallMethodObjArgs(out, names[NAME_FLUSH], NULL);
        _cleanup_object_ PyObject *second =
                first ? PyObject_CallMethodObjArgs(err, names[NAME_FLUSH], NULL) : NULL;
        if (!second) {
                PyErr_Clear();
                return call(PART_STDIO, NAME_FLUSH);
        }
        (void) fflush(NULL);
        return true;
}

/* As Gate.repair. */
static bool repair(void) {
        _cleanup_object_ PyObject *handler = PyObject_CallFunctionObjArgs(parts[PART_GETSIGNAL], sigint, NULL);
        if (handler != parts[PART_HANDLER]) {
                PyErr_Clear();
                return call(PART_GATE, NAME_REPAIR);
        }
        sigset_t only;
        (void) sigemptyset(&only);
        (void) sigaddset(&only, SIGINT);
        return pthread_sigmask(SIG_UNBLOCK, &only, NULL) == 0;
}

static long number_of(enum part part, enum name name) {
        _cleanup_object_ PyObject *number = PyObject_GetAttr(parts[part], names[name]);
        return number ? PyLong_AsLong(number) : -1;
}

static bool is_set(enum part part, enum name name) {
        _cleanup_object_ PyObject *value = PyObject_GetAttr(parts[part], names[name]);
        return !value || PyObject_IsTrue(value) != 0;
}

/* The end of a run that Python has something to tell about. */
static bool conclude(int fd, PyObject *bundle, PyObject *failure) {
        _cleanup_object_ PyObject *payload =
                PyObject_CallMethodObjArgs(parts[PART_RUNNER], names[NAME_CONCLUDE], bundle, failure, NULL);
        return answer_with(fd, payload);
}

/* As Runner._show: `_` is the last value, unless somebody else has put something there. */
static bool remember_last(PyObject *value) {
        PyObject *there = PyDict_GetItem(parts[PART_BUILTINS], names[NAME_UNDERSCORE]);
        if (there != PyDict_GetItem(parts[PART_BUILTINS], names[NAME_OURS]))
                return true;
        return PyDict_SetItem(parts[PART_BUILTINS], names[NAME_UNDERSCORE], value) == 0 &&
               PyDict_SetItem(parts[PART_BUILTINS], names[NAME_OURS], value) == 0;
}

/* The end of a run that went well. The value goes before the host is told: its end may have something to print. */
static bool conclude_value(int fd, const struct request *request, long count, PyObject **value) {
        _cleanup_object_ PyObject *digits = *value == none ? NULL : number_text(*value);
        bool is_plain = (*value == none || digits) && getpid() == number_of(PART_GATE, NAME_PID) &&
                        !is_set(PART_FIGURES, NAME_REGISTRY);
        if (PyErr_Occurred())
                PyErr_Clear();
        if (is_plain)
                return (*value == none || remember_last(*value)) && flush() && repair() &&
                       answer(fd, request->id_text, count, digits, number_of(PART_RUNNER, NAME_DISPLAYS));
        _cleanup_object_ PyObject *shown =
                PyObject_CallMethodObjArgs(parts[PART_RUNNER], names[NAME_SHOW], *value, NULL);
        Py_DecRef(*value);
        *value = NULL;
        return shown && conclude(fd, PyTuple_GetItem(shown, 0), PyTuple_GetItem(shown, 1));
}

/* 1: done; 0: nothing was done, Python must; -1: an exception, or the host is gone. */
static int take_turn(int fd, const char *bytes, size_t size) {
        __attribute__((cleanup(release))) struct request request = { 0 };
        if (is_set(PART_TRIMMER, NAME_IS_TRIMMED) || !read_request(bytes, size, &request)) {
                PyErr_Clear();
                return 0;
        }
        /* One that was done before is for Python. */
        _cleanup_object_ PyObject *last_id = PyObject_GetAttr(parts[PART_RUNNER], names[NAME_LAST_ID]);
        if (!last_id || PyUnicode_Compare(last_id, request.id) == 0) {
                PyErr_Clear();
                return 0;
        }
        PyObject *context = PyDict_GetItem(parts[PART_CONTEXTS], names[NAME_DEFAULT]);
        _cleanup_object_ PyObject *module = context ? PyObject_GetAttr(context, names[NAME_MODULE]) : NULL;
        _cleanup_object_ PyObject *space = module ? PyModule_GetDict(module) : NULL;
        if (space)
                Py_IncRef(space);
        long count = number_of(PART_RUNNER, NAME_COUNT) + 1;
        _cleanup_object_ PyObject *number = PyLong_FromLong(count);
        if (!space || !number || !set(PART_RUNNER, NAME_RUN_ID, request.id) || !set(PART_RUNNER, NAME_DISPLAYS, zero) ||
            PyDict_SetItem(PyImport_GetModuleDict(), names[NAME_MAIN], module) < 0 || !arm())
                return -1;
        bool is_async = false;
        _cleanup_object_ PyObject *value = execute(request.code, space, &is_async);
        _cleanup_object_ PyObject *failure = value || is_async ? NULL : take_failure();
        if (!set(PART_GATE, NAME_ARMED, no))
                return -1;
        if (is_async)
                return 0;
        if (!set(PART_RUNNER, NAME_COUNT, number) || !set(PART_RUNNER, NAME_LAST_ID, request.id))
                return -1;
        return (value ? conclude_value(fd, &request, count, &value) : conclude(fd, none, failure)) ? 1 : -1;
}

/* ---- waiting ---- */

static int wait_for(int fd, int timeout_ms) {
        struct pollfd waiting = { .fd = fd, .events = POLLIN };
        for (;;) {
                PyThreadState *state = PyEval_SaveThread();
                int n = poll(&waiting, 1, timeout_ms);
                int code = n < 0 ? -errno : n;
                PyEval_RestoreThread(state);
                if (code != -EINTR)
                        return code;
                if (PyErr_CheckSignals() < 0)
                        return code;
        }
}

static bool is_execute(const unsigned char *bytes, size_t size) {
        return size >= HEADER_SIZE && bytes[4] == EXECUTE && !bytes[5] && !bytes[6] && !bytes[7] &&
               (bytes[0] | (size_t) bytes[1] << 8 | (size_t) bytes[2] << 16 | (size_t) bytes[3] << 24) ==
                       size - HEADER_SIZE;
}

PyObject *turn_serve(int requests_fd, int replies_fd, int first_ms, int then_ms) {
        static unsigned char bytes[REQUEST_MAX];
        for (int timeout_ms = first_ms;; timeout_ms = then_ms) {
                int code = wait_for(requests_fd, timeout_ms);
                if (code == 0) {
                        Py_IncRef(none);
                        return none;
                }
                /* What was meant for the last run and came behind it is heard now, when nobody is armed, and not by the
                 * run that has just been asked for: no Python may have run since. */
                if (PyErr_Occurred() || PyErr_CheckSignals() < 0)
                        return NULL;
                ssize_t n = code < 0 ? -1 : read(requests_fd, bytes, sizeof(bytes));
                if (n < 0 && code > 0 && errno == EINTR)
                        continue;
                int done = n > 0 && is_execute(bytes, (size_t) n) ?
                                   take_turn(replies_fd, (const char *) bytes + HEADER_SIZE, (size_t) n - HEADER_SIZE) :
                                   0;
                if (done < 0 && PyErr_Occurred())
                        return NULL;
                if (done == 0)
                        return PyBytes_FromStringAndSize((const char *) bytes, n < 0 ? 0 : n);
                if (done < 0) /* the host does not listen any more */
                        return PyBytes_FromStringAndSize(NULL, 0);
        }
}
