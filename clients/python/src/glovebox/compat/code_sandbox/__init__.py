"""A LangGraph agent's sandbox: sessions whose variables stay, or a fresh box for each call, and artifacts of both.

    from glovebox.compat.code_sandbox import SessionManager

    with SessionManager(sessions_dir="sessions") as manager:
        run = manager.exec("open('/session/artifacts/a.txt', 'w').write('hello')", session_id="conv")
        print(run.artifact_map)      # {'/session/artifacts/a.txt': '…/sessions/conv/artifacts/a.txt'}

The tool and the graph need `langchain-core` and `langgraph` (`pip install "glovebox-sandbox[langgraph]"`);
`python -m glovebox.compat.code_sandbox` is a small application of both.
"""

from __future__ import annotations

from .session_manager import SandboxRun, SessionManager

__all__ = ["SandboxRun", "SessionManager"]
