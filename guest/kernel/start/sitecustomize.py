"""Runs in a fresh interpreter of `glovebox run` before its program: installs the extras, and leaves no trace.

Python imports it because PYTHONPATH names this directory; the program sees PYTHONPATH and sys.path without it.
"""


def _start() -> None:
    import os
    import sys

    here = os.path.dirname(__file__)
    sys.path[:] = [part for part in sys.path if part != here]
    rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)[2]
    if rest:
        os.environ["PYTHONPATH"] = rest
    else:
        os.environ.pop("PYTHONPATH", None)
    space = {"__name__": "glovebox_kernel.extras", "__file__": os.path.dirname(here) + "/glovebox_kernel/extras.py"}
    with open(space["__file__"], "rb") as file:
        exec(compile(file.read(), space["__file__"], "exec"), space)
    space["extras_install"]()
    own = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")  # the image's own
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own


_start()
