"""`python3 -m glovebox_kernel`: a kernel started by exec, without a nursery."""

from __future__ import annotations

from glovebox_kernel.main import main

if __name__ == "__main__":
    main()
