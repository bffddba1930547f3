"""Why a request is not done."""

from __future__ import annotations


class RequestError(Exception):
    """A request that lacks something, or asks for what does not exist."""


class HeldBack(Exception):
    """The kernel cannot sleep. `held`: what stands in the way, each with context, name, type and why."""

    def __init__(self, held: list[dict[str, str]]) -> None:
        super().__init__("what is held in " + ", ".join(entry["name"] for entry in held[:10]) + " cannot be saved")
        self.held = held


class MagicError(Exception):
    """A magic that is not there, or that cannot be done in a box."""

    __module__ = "builtins"  # a traceback then names it without our own package
