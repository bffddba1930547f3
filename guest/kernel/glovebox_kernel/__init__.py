"""The Python kernel of a box: one interpreter that keeps its variables between runs.

Theory of operation: one process, one thread, one loop (`main.Kernel.serve`). Requests come as frames on one inherited
descriptor (`channel`); each is answered by exactly one terminal frame. What the code prints does not pass through
here: descriptors 1 and 2 are pipes of the process that started the kernel. Nothing in here kills a process: a run is
interrupted by SIGINT from outside, and a kernel that must end is killed from outside.

Nothing in this package is a security boundary: the code that it runs shares its process and can do all that it can.
"""

from __future__ import annotations

__version__ = "0.1.0"
