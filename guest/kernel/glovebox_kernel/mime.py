"""A value as a MIME bundle: text always, and the richer forms that the object offers. Every form is bounded.

Forms are looked up on the object's type, not on the object: objects that answer every attribute (mocks, proxies)
would otherwise claim to be pictures. An exception raised by the user's own `_repr_…_` is the run's error.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any, Callable

from glovebox_kernel import figures

TEXT_MAX_CHARS = 1 << 20
IMAGE_MAX_BYTES = 2 << 20
BUNDLE_MAX_BYTES = 2900 << 10  # as JSON: with what is around it, it must fit a frame
_SHRUNK_CHARS = 64 << 10
Bundle = dict

_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/json", "_repr_json_"),
)
_NUMBERS = frozenset((int, float, bool))
_PLAIN_TYPES = frozenset(
    (int, float, bool, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, type(None), range, slice)
)


def text_clip(text: str, limit: int) -> str:
    """Bounded, the cut stated, and without NUL, which the host's JSON reader refuses."""
    if len(text) > limit:
        text = f"{text[:limit]}\n[... {len(text) - limit} characters cut ...]"
    return text.replace("\0", "\ufffd") if "\0" in text else text


def bundle_make(value: Any) -> Bundle:
    """The bundle of a value. Runs user code: may raise anything, may be interrupted."""
    kind = type(value)
    if kind in _NUMBERS:
        text = repr(value)
        return {"text/plain": text if len(text) <= TEXT_MAX_CHARS else text_clip(text, TEXT_MAX_CHARS)}
    bundle: Bundle = {"text/plain": _repr_bounded(value)}
    if kind in _PLAIN_TYPES:
        return bundle
    _add_mimebundle(bundle, value)
    for mime, method_name in _METHODS:
        method = getattr(kind, method_name, None)
        if method is not None and mime not in bundle and not isinstance(value, type):
            _add_form(bundle, mime, _call_method(method, value))
    if "image/png" not in bundle and figures.is_figure(value):
        _add_form(bundle, "image/png", figures.figure_png(value))
    return bundle_bound(bundle)


def bundle_of_png(png: bytes, text: str) -> Bundle:
    bundle: Bundle = {"text/plain": text}
    _add_form(bundle, "image/png", png)
    return bundle


def bundle_of_raw(data: Any) -> Bundle:
    """`display({...}, raw=True)`: the caller made the bundle; it is bounded all the same."""
    if not isinstance(data, dict):
        raise TypeError(f"display(raw=True) takes a dict of MIME type to data, not {type(data).__name__}")
    bundle: Bundle = {}
    for mime, form in data.items():
        _add_form(bundle, str(mime), form)
    return bundle_bound(bundle)


def bundle_bound(bundle: Bundle) -> Bundle:
    """Each form is bounded already; together they must still fit a frame. The largest are left out first, and the
    bundle names them."""
    dropped = []
    while sum(map(_form_size, bundle.values())) > BUNDLE_MAX_BYTES:
        largest = max(bundle, key=lambda mime: _form_size(bundle[mime]))
        dropped.append(largest)
        del bundle[largest]
    if dropped:
        note = f"[dropped for their size: {', '.join(dropped)}]"
        bundle["text/plain"] = "\n".join(filter(None, (bundle.get("text/plain"), note)))
    return bundle


def bundle_shrink(bundle: Bundle) -> Bundle:
    """One that is still too large for a frame: the beginning of its text."""
    text = bundle.get("text/plain")
    return {
        "text/plain": text_clip(text if isinstance(text, str) else "", _SHRUNK_CHARS) + "\n[the rest was too large]"
    }


def _form_size(form: Any) -> int:
    return len(json.dumps(form, ensure_ascii=False).encode("utf-8", "replace"))


def _call_method(method: Callable[[Any], Any], value: Any) -> Any:
    try:
        form = method(value)
    except NotImplementedError:
        return None
    # IPython lets a method return (data, metadata).
    return form[0] if isinstance(form, tuple) and len(form) == 2 else form


def _add_mimebundle(bundle: Bundle, value: Any) -> None:
    method = getattr(type(value), "_repr_mimebundle_", None)
    if method is None or isinstance(value, type):
        return
    forms = _call_method(method, value)
    if isinstance(forms, dict):
        for mime, form in forms.items():
            _add_form(bundle, str(mime), form)


def _add_form(bundle: Bundle, mime: str, form: Any) -> None:
    if form is None:
        return
    if isinstance(form, (bytes, bytearray, memoryview)):
        if len(form) > IMAGE_MAX_BYTES:
            _add_note(bundle, f"[{mime} of {len(form)} bytes not shown: more than {IMAGE_MAX_BYTES}]")
            return
        bundle[mime] = base64.b64encode(form).decode("ascii")
    elif mime == "application/json" or mime.endswith("+json"):
        try:
            bundle[mime] = _json_checked(form)
        except (ValueError, TypeError, RecursionError) as error:
            _add_note(bundle, f"[{mime} not shown: {error}]")
    elif isinstance(form, str):
        is_image = mime.startswith("image/")
        if is_image and len(form) > IMAGE_MAX_BYTES * 4 // 3 + 4:
            _add_note(bundle, f"[{mime} of {len(form)} characters not shown]")
            return
        bundle[mime] = form.replace("\0", "\ufffd") if is_image else text_clip(form, TEXT_MAX_CHARS)
    else:
        _add_note(bundle, f"[{mime} not shown: a {type(form).__name__} is neither text nor bytes]")


def _add_note(bundle: Bundle, note: str) -> None:
    bundle["text/plain"] = "\n".join(filter(None, (bundle.get("text/plain"), note)))


def _json_checked(form: Any) -> Any:
    """Only what a strict 64-bit JSON reader takes: no NaN, no NUL, no larger integers; bounded."""
    text = json.dumps(form, allow_nan=False)
    if len(text) > TEXT_MAX_CHARS:
        raise ValueError(f"{len(text)} characters of JSON are more than {TEXT_MAX_CHARS}")
    if "\\u0000" in text:
        raise ValueError("it has a NUL character")
    return json.loads(text, parse_int=_int_checked)


def _int_checked(digits: str) -> int:
    value = int(digits)
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"the integer {digits[:30]} has more than 64 bits")
    return value


def _repr_bounded(value: Any) -> str:
    """repr, without first building gigabytes of text for a long plain sequence."""
    kind = type(value)
    limit = TEXT_MAX_CHARS
    if kind in (str, bytes, bytearray) and len(value) > limit:
        return text_clip(repr(value[:limit]), limit) + f"\n[... of {len(value)} in all ...]"
    if kind in (list, tuple) and len(value) > limit // 3:
        # An element and its ", " take at least three characters.
        return text_clip(repr(value[: limit // 3 + 1]), limit) + f"\n[... of {len(value)} elements in all ...]"
    if kind in (dict, set, frozenset) and len(value) > limit // 3:
        some = itertools.islice(value.items() if kind is dict else value, limit // 3 + 1)
        return text_clip(repr(kind(some)), limit) + f"\n[... of {len(value)} elements in all ...]"
    return text_clip(repr(value), limit)
