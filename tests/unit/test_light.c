/* Which kernel a run is given. A wrong answer costs time only; these are the ones that must be right for that. */
#include <jansson.h>

#include "session/light.h"
#include "tap.h"

#define PRELOAD "numpy,pandas sklearn"

static bool is_light(const char *code, const char *preload) {
        json_t *what = json_pack("{s:s}", "code", code);
        bool suits = light_suits(what, preload);
        json_decref(what);
        return suits;
}

static void check_code(void) {
        static const char *const light[] = {
                "", "print(42)", "import os", "import os, sys as s, json", "from collections.abc import Iterator\n1",
                "if x:\n    import math; print(math.pi)", "def f():\n    yield from g()", "raise A from b",
                "from urllib.parse import quote, unquote as u\nimport re", "important = 1; fromage = 2",
        };
        static const char *const full[] = {
                "import numpy", "import numpy as np", "from pandas import DataFrame", "x = 'sklearn'", "import os, torch",
                "import os; import torch", "import os as o, torch", "from torch.nn import x", "from . import x",
                "import \\\n torch", "from \\\n torch import x", "import os, \\\n torch", "\timport\ttorch", "load('t.csv')",
                "save(x)", "import pickle", "exec(text)", "eval(text)", "__import__('to' + 'rch')",
                "import sys; 'x' in sys.modules", "import importlib", "from os import path\nimport torch",
                "try: import torch\nexcept ImportError: pass", "import", "from os import path;import torch",
        };
        for (size_t i = 0; i < sizeof(light) / sizeof(light[0]); i++)
                ok(is_light(light[i], PRELOAD), "light: number %zu", i);
        for (size_t i = 0; i < sizeof(full) / sizeof(full[0]); i++)
                ok(!is_light(full[i], PRELOAD), "full: number %zu", i);
        ok(!is_light("print(42)", ""), "where nothing is preloaded there is one kind");
}

static void check_others(void) {
        json_t *command = json_pack("{s:[s, s]}", "argv", "python3", "numpy.py");
        ok(light_suits(command, PRELOAD), "a command is a process of its own");
        json_decref(command);
        json_t *hidden = json_pack("{s:s%}", "code", "1\0import torch", (size_t) 14);
        ok(!light_suits(hidden, PRELOAD), "what stands behind a NUL is not overlooked");
        json_decref(hidden);
        char *large = calloc(1, (1 << 20) + 1);
        memset(large, ' ', 1 << 20);
        ok(!is_light(large, PRELOAD), "what is very long is not searched");
        free(large);
}

int main(void) {
        check_code();
        check_others();
        return done_testing();
}
