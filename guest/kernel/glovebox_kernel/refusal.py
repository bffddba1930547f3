"""The exception for a request that is refused."""

from __future__ import annotations


class RequestError(Exception):
    """The request lacks a member, or names something that does not exist."""


class HeldBack(Exception):
    """The kernel cannot sleep. `held`: the variables that prevent it, each with context, name, type and reason."""

    def __init__(self, held: list[dict[str, str]]) -> None:
        super().__init__("what is held in " + ", ".join(entry["name"] for entry in held[:10]) + " cannot be saved")
        self.held = held


class MagicError(Exception):
    """A magic that does not exist, or does not work in a box."""

    __module__ = "builtins"  # a traceback then names it without our own package
