"""How the daemon's operations are spelled in its REST API (docs/API.md)."""

from __future__ import annotations

from typing import Any, Callable
from urllib.parse import quote, urlencode

from .errors import GloveboxError, UnsupportedError, error_of

Fields = dict[str, Any]
Shape = Callable[[int, Fields], Fields]

_ONCE = ("ephemeral", "one_shot")  # implied by /run
_LOCAL = ("session", "shell", "install_hint")  # in the path, under another name, and of the socket alone


class Request:
    """Method and path with its query, the JSON body, and what makes the daemon's answer of the service's."""

    __slots__ = ("body", "method", "path", "shape")

    def __init__(self, method: str, path: str, body: Fields | None = None, shape: Shape | None = None) -> None:
        self.method = method
        self.path = path
        self.body = body
        self.shape = shape


def request_of(op: str, fields: Fields) -> Request:
    route = _ROUTES.get(op)
    if route is None:
        raise UnsupportedError(f"{op} is not there over HTTP; connect to the daemon's socket instead")
    return route(fields)


def sandbox_path(session: str, rest: str = "", **query: Any) -> str:
    path = f"/sandbox/{quote(session, safe='')}{rest}"
    return path + ("?" + urlencode(query) if query else "")


def problem_of(status: int, body: Any) -> GloveboxError:
    """The exception for an answer that is a problem."""
    if not isinstance(body, dict) or "detail" not in body:
        return error_of("protocol", f"the service answered with HTTP status {status}; is this the URL of Glovebox?")
    code, detail, remedy = str(body.get("code", "")), str(body.get("detail")), body.get("remedy")
    return error_of(code, f"{detail}; {remedy}" if remedy else detail)


def _name(sandbox: Fields) -> Fields:
    return {**sandbox, "name": sandbox.get("user_id", "")}


def _create(fields: Fields) -> Request:
    body = {key: value for key, value in fields.items() if key != "session"}
    return Request(
        "POST",
        sandbox_path(fields["session"], "/create"),
        body,
        lambda status, answer: {**_name(answer), "created": status == 201},
    )


def _list(fields: Fields) -> Request:
    def shape(_: int, answer: Fields) -> Fields:
        return {"sessions": [_name(one) for one in answer["sandboxes"]]}

    return Request("GET", "/sandboxes", None, shape)


def _show(fields: Fields) -> Request:
    return Request("GET", sandbox_path(fields["session"]), None, lambda _, answer: _name(answer))


def _post(rest: str, *keys: str) -> Callable[[Fields], Request]:
    def make(fields: Fields) -> Request:
        body = {key: fields[key] for key in keys if key in fields}
        return Request("POST", sandbox_path(fields["session"], rest), body or None)

    return make


def _remove(fields: Fields) -> Request:
    keep = "true" if fields.get("keep_files") else "false"
    return Request("DELETE", sandbox_path(fields["session"], "/destroy", keep_files=keep))


def _run(rest: str) -> Callable[[Fields], Request]:
    def make(fields: Fields) -> Request:
        body = {key: value for key, value in fields.items() if key not in (*_LOCAL, *_ONCE)}
        if "shell" in fields:
            body["command"] = fields["shell"]
        if fields.get("ephemeral"):
            return Request("POST", "/run", body)
        return Request("POST", sandbox_path(fields["session"], rest), body)

    return make


def _run_read(fields: Fields) -> Request:
    return Request("GET", sandbox_path(fields["session"], f"/runs/{fields['run']}/events", **{"from": fields["from"]}))


def _file(method: str, **query: str) -> Callable[[Fields], Request]:
    def make(fields: Fields) -> Request:
        more = {key: "true" for key in ("recursive",) if fields.get(key)}
        return Request(method, sandbox_path(fields["session"], "/file", path=fields["path"], **query, **more))

    return make


def _file_list(fields: Fields) -> Request:
    def shape(_: int, answer: Fields) -> Fields:
        if "entries" not in answer:
            raise error_of("not_found", f"{fields['path']} is not a directory")
        return {"entries": [{**entry, "path": entry.get("name", "")} for entry in answer["entries"]]}

    return Request("GET", sandbox_path(fields["session"], "/file", path=fields["path"].rstrip("/") + "/"), None, shape)


def _file_move(fields: Fields) -> Request:
    query = {"path": fields["path"], "move_to": fields["to"], "create": "false"}
    return Request("POST", sandbox_path(fields["session"], "/file", **query))


def _get(rest: str) -> Callable[[Fields], Request]:
    return lambda fields: Request("GET", sandbox_path(fields["session"], rest))


_ROUTES: dict[str, Callable[[Fields], Request]] = {
    "session.create": _create,
    "session.list": _list,
    "session.show": _show,
    "session.remove": _remove,
    "session.interrupt": _post("/interrupt"),
    "session.restart": _post("/restart"),
    "session.hibernate": _post("/hibernate", "depth"),
    "session.install": _run("/pip/install"),
    "execute": _run("/execute"),
    "command": _run("/shell"),
    "run.read": _run_read,
    "run.cancel": lambda fields: Request("POST", sandbox_path(fields["session"], f"/runs/{fields['run']}/cancel")),
    "file.list": _file_list,
    "file.stat": _file("GET", stat="true"),
    "file.remove": _file("DELETE"),
    "file.mkdir": _file("POST", mkdir="true", create="false"),
    "file.move": _file_move,
    "artifact.list": _get("/artifacts"),
    "status": lambda fields: Request("GET", "/health"),
}
