"""`python -m glovebox.compat.code_sandbox "question"`: a data analyst in a terminal.

With OPENAI_API_KEY or ANTHROPIC_API_KEY (and `langchain-openai` or `langchain-anthropic`) a real model answers; without
one a scripted model shows what happens.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from .session_manager import SessionManager

DEMO = [
    "import statistics\nsample = [12, 15, 13, 18, 14, 16, 11, 19]\nprint('mean', statistics.mean(sample))",
    "from pathlib import Path\nPath('/session/artifacts').mkdir(parents=True, exist_ok=True)\n"
    "Path('/session/artifacts/report.txt').write_text(f'mean {statistics.mean(sample)}\\n')\n"
    "print('median', statistics.median(sample))",
]
MODELS = {"OPENAI_API_KEY": "openai:gpt-4o-mini", "ANTHROPIC_API_KEY": "anthropic:claude-sonnet-4-5"}


def choose_model() -> Any:
    for variable, name in MODELS.items():
        if os.environ.get(variable):
            from langchain.chat_models import init_chat_model

            return init_chat_model(os.environ.get("SANDBOX_MODEL", name))
    from .scripted_model import ScriptedModel

    print("no key of a model's service is set: a scripted model answers", file=sys.stderr)
    return ScriptedModel(code=DEMO)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m glovebox.compat.code_sandbox", description=__doc__)
    parser.add_argument("question", nargs="?", default="What are mean and median of the sample? Save a report.")
    parser.add_argument("--data", metavar="DIR", help="datasets, shown read-only as /data")
    parser.add_argument("--session", default="conv", help="name of the conversation (default: conv)")
    given = parser.parse_args()
    try:
        from .make_graph import make_graph
    except ImportError as error:
        print(f'{error}; install it: pip install "glovebox-sandbox[langgraph]"', file=sys.stderr)
        return 2
    with SessionManager(datasets_dir=given.data) as manager:
        graph = make_graph(choose_model(), manager)
        config = {"configurable": {"thread_id": given.session}}
        answer = graph.invoke({"messages": [("user", given.question)]}, config)
        for message in answer["messages"]:
            message.pretty_print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
