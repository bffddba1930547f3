#!/usr/bin/env python3
"""embed_page.py PAGE OUTPUT: a C file that carries the page's bytes, and the policy under which a browser may run it:
the inline script and style by their hashes, requests to the same server, and nothing else (see src/api/page.h)."""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from pathlib import Path


def hashes(page: str, tag: str) -> str:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    if not found or len(found) != page.count(f"<{tag}"):
        sys.exit(f"embed_page.py: every <{tag}> must be inline and without attributes, and there must be one")
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in found)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def main() -> None:
    page = Path(sys.argv[1]).read_text()
    policy = (
        f"default-src 'none'; script-src {hashes(page, 'script')}; style-src {hashes(page, 'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    data = page.encode()
    rows = ",\n".join(", ".join(map(str, data[at : at + 24])) for at in range(0, len(data), 24))
    Path(sys.argv[2]).write_text(
        f'#include "api/page.h"\nconst char page_policy[] = "{policy}";\n'
        f"const unsigned char page_html[] = {{\n{rows}\n}};\nconst size_t page_html_size = sizeof(page_html);\n"
    )


if __name__ == "__main__":
    main()
