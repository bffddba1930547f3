"""Checks a socket without blocking."""

from __future__ import annotations

import select
import socket


def is_silent(connection: socket.socket) -> bool:
    """Whether nothing has come: an idle connection that has something to say has come to its end."""
    try:
        if not hasattr(select, "poll"):  # Windows, where only services on other machines can be used
            return not select.select([connection], [], [], 0)[0]
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return not poll.poll(0)
    except (OSError, ValueError):
        return False
