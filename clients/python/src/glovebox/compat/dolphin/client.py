"""One question to a model, with or without the reasoning loop.

Without a `model` of the caller's, the one behind `OPENAI_API_KEY` is asked (`OPENAI_BASE_URL` for any service with the
same interface, `OPENAI_MODEL` for its name).
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request

from .reasoning import Message, Model, ReasoningConfig, ReasoningResult, _ask, reason

REQUEST_S = 120


async def run_interaction(
    user_query: str, reasoning_config: ReasoningConfig | None = None, use_reasoning: bool = False,
    model: Model | None = None,
) -> ReasoningResult:  # fmt: skip
    """The model's answer. With `use_reasoning` it may run code before it gives it."""
    asked = model or chat_model()
    if use_reasoning:
        return await reason(user_query, asked, reasoning_config or ReasoningConfig())
    messages = [{"role": "user", "content": user_query}]
    answer = await _ask(asked, messages)
    return ReasoningResult(answer, [*messages, {"role": "assistant", "content": answer}])


def chat_model() -> Model:
    """A model behind the chat interface that most services have."""
    key = os.environ.get("OPENAI_API_KEY")
    base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/")
    if not key:
        raise RuntimeError("there is no model to ask: set OPENAI_API_KEY, or pass model= (a function of the messages)")

    def post(messages: list[Message]) -> str:
        body = {"model": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"), "messages": messages}
        request = urllib.request.Request(
            f"{base}/chat/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
        )  # fmt: skip
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
                return str(json.load(answer)["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"the model's service answered {error.code}: {error.read()[:500]!r}") from error

    async def ask(messages: list[Message]) -> str:
        return await asyncio.to_thread(post, messages)

    return ask
