# Generated from _aio/client.py by tools/generate_sync.py: change that one.
"""One transport for each daemon, shared by all sandboxes there."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Union

from .._place import Target
from .unix import UnixTransport

if TYPE_CHECKING:
    from .http import HttpTransport

AnyTransport = Union[UnixTransport, "HttpTransport"]
_lock = threading.Lock()
_transports: weakref.WeakValueDictionary[Target, AnyTransport] = weakref.WeakValueDictionary()


def _make(target: Target) -> AnyTransport:
    if target.url is None:
        return UnixTransport(target)
    from .http import HttpTransport  # only those who use it wait for its import

    return HttpTransport(target)


def transport_for(target: Target) -> AnyTransport:
    """Exists, with its connections, while it is used."""
    with _lock:
        transport = _transports.get(target)
        if transport is None:
            transport = _make(target)
            _transports[target] = transport
        return transport
