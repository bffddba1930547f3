"""The network of a box: a proxy that admits what was allowed, and explains refusals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.daemon import wait_for
from support.glovebox import Glovebox
from support.host_count import count_host, left_behind
from support.web import ASK, NAME, Web, serve_web


@pytest.fixture
def web() -> Iterator[Web]:
    with serve_web() as server:
        yield server


def run(glovebox: Glovebox, *words: str) -> Any:
    """The JSON that the code printed."""
    done = glovebox("run", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def own_address() -> str | None:
    """An address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


@pytest.mark.smoke
def test_an_allowed_host_is_reached_by_url_and_by_tunnel(glovebox: Glovebox, web: Web) -> None:
    code = (
        ASK
        + f"""
import urllib.request
by_url = json.load(urllib.request.urlopen(urllib.request.Request("{web.url}/a?b=c", data=b"x" * 100000)))
by_tunnel = ask("CONNECT {web.rule} HTTP/1.1\\r\\n\\r\\nGET /t HTTP/1.0\\r\\n\\r\\n")
print(json.dumps([by_url, by_tunnel]))
"""
    )
    words = ["run", "--json", "--allow-host", web.rule, *web.pin, "-c", code]
    done = json.loads(glovebox(*words).stdout)
    assert done["status"] == "ok", done
    by_url, by_tunnel = json.loads(done["stdout"])
    assert (by_url["method"], by_url["path"], len(by_url["body"])) == ("POST", "/a?b=c", 100000)
    assert by_tunnel.startswith("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK\r\n"), by_tunnel
    assert json.loads(by_tunnel.rpartition("\r\n\r\n")[2])["path"] == "/t"
    assert done["isolation"]["network"] == "proxy: 1 host"


def test_a_box_without_network_has_no_proxy(glovebox: Glovebox) -> None:
    code = """if True:
        import json, os, socket
        proxies = [name for name in os.environ if "proxy" in name.lower()]
        try:
            socket.create_connection(("127.0.0.1", 3128), 60)
        except ConnectionRefusedError:
            print(json.dumps(proxies))
    """
    assert run(glovebox, "-c", code) == []


REFUSED = [
    # request, status, what the reason says
    ("CONNECT other.example:443", 403, "other.example:443 is not on the allow-list"),
    ("CONNECT {name}:1", 403, "is not on the allow-list"),
    ("CONNECT {name}.other.example:{port}", 403, "is not on the allow-list"),
    ("CONNECT not{name}:{port}", 403, "is not on the allow-list"),
    ("CONNECT below.{name}:{port}", 403, "is not on the allow-list"),
    ("CONNECT 127.0.0.1:{port}", 403, "is not on the allow-list"),
    ("CONNECT [::ffff:127.0.0.1]:{port}", 403, "is not on the allow-list"),
    ("CONNECT 169.254.169.254:80", 403, "is not on the allow-list"),
    ("CONNECT {name}.:{port}", 400, "not a host name"),
    ("CONNECT 2130706433:{port}", 400, "unusual spelling"),
    ("CONNECT 0x7f.1:{port}", 400, "unusual spelling"),
    ("CONNECT 127.1:{port}", 400, "unusual spelling"),
    ("CONNECT user@{name}:{port}", 400, "not a host name"),
    ("CONNECT {name}", 400, "no port"),
    ("CONNECT {name}:{port}:80", 400, "not a port"),
    ("GET http://{name}@other.example:{port}/", 400, "user information"),
    ("GET http://other.example:{port}@{name}/", 400, "user information"),
    ("GET https://{name}:{port}/", 400, "names no http:// URL"),
    ("GET /", 400, "names no http:// URL"),
    ("GET http://{name}:{port}/\x01", 400, "its path has"),
]


def test_all_else_is_refused_in_words_and_reaches_nothing(glovebox: Glovebox, web: Web) -> None:
    heads = [line.format(name=NAME, port=web.port) for line, _, _ in REFUSED]
    code = (
        ASK
        + f"""
print(json.dumps([ask(head + " HTTP/1.1\\r\\nHost: {web.rule}\\r\\n\\r\\n") for head in {heads!r}]))
"""
    )
    answers = run(glovebox, "--allow-host", web.rule, *web.pin, "-c", code)
    for answer, (line, status, reason) in zip(answers, REFUSED, strict=True):
        first = answer.partition("\r\n")[0]
        assert first.startswith(f"HTTP/1.1 {status} ") and reason in first, (line, answer)
        assert "glovebox: " in answer.partition("\r\n\r\n")[2], answer
    assert web.seen == []


def test_no_request_is_smuggled_behind_another(glovebox: Glovebox, web: Web) -> None:
    """A head is written anew from what was understood; what two readers could read in two ways is refused."""
    line = f"POST {web.url}/one HTTP/1.1\r\n"
    second = f"GET {web.url}/two HTTP/1.1\r\nHost: x\r\n\r\n"
    fine = [
        line + "Host: other.example\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nProxy-Authorization: Basic x\r\n"
        "X-Kept: 2\r\nContent-Length: 5\r\n\r\nhello" + second,
    ]
    refused = [
        line + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + second,
        line + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
        line + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
        line + "Transfer-Encoding : chunked\r\n\r\n" + second,
        line + "X: y\r\n Transfer-Encoding: chunked\r\n\r\n" + second,
        line + "X: y\nTransfer-Encoding: chunked\r\n\r\n" + second,
        line + "X: y\rTransfer-Encoding: chunked\r\n\r\n" + second,
        line + "Content-Length: +5\r\n\r\nhello" + second,
        line + "Host: a\r\nHost: b\r\n\r\n" + second,
        line + "X: " + "y" * 20000 + "\r\n\r\n" + second,
        "\r\n" + line + "\r\n" + second,
    ]
    code = ASK + f"print(json.dumps([ask(text) for text in {fine + refused!r}]))"
    answers = run(glovebox, "--allow-host", web.rule, *web.pin, "-c", code)
    assert answers[0].startswith("HTTP/1.1 200 OK"), answers[0]
    assert [answer[9] for answer in answers[1:]] == ["4"] * len(refused), answers
    assert [(seen["method"], seen["path"], seen["body"]) for seen in web.seen] == [("POST", "/one", "hello")]
    headers = dict(web.seen[0]["headers"])
    assert headers == {"host": web.rule, "x-kept": "2", "content-length": "5", "connection": "close"}


def test_private_addresses_are_refused_after_resolution(glovebox: Glovebox, web: Web) -> None:
    """`localhost` leads to the host's loopback by the host's own resolver; so does an address of the machine itself."""
    targets = [f"localhost:{web.port}", f"127.0.0.1:{web.port}", f"[::1]:{web.port}", "169.254.169.254:80"]
    if own := own_address():
        targets.append(f"{own}:{web.port}")
    code = ASK + f"print(json.dumps([ask(f'CONNECT {{to}} HTTP/1.1\\r\\n\\r\\n') for to in {targets!r}]))"
    listed = [word for target in targets for word in ("--allow-host", target)]
    for words in (["--network", "full"], listed):
        answers = run(glovebox, *words, "-c", code)
        for target, answer in zip(targets, answers, strict=True):
            assert answer.startswith("HTTP/1.1 403 ") and "leads to a" in answer, (words, target, answer)
    allowed = ["--allow-host", targets[0], "--egress-allow-private", "localhost"]
    ask = ASK + f"print(json.dumps(ask('GET http://{targets[0]}/ HTTP/1.0\\r\\n\\r\\n')))"
    assert "200 OK" in run(glovebox, *allowed, "-c", ask)
    assert len(web.seen) == 1


def proxies_of(pid: int) -> list[int]:
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text() == "glovebox-proxy\n":
                found.append(int(child))
    return found


def test_the_proxy_has_no_privileges_and_ends_with_the_run(glovebox: Glovebox, web: Web) -> None:
    before = count_host(glovebox)
    code = "print('ready'); import time; time.sleep(600)"
    process = glovebox.popen("run", "--allow-host", web.rule, *web.pin, "-c", code)
    assert process.stdout and process.stdout.readline() == "ready\n"
    (proxy,) = wait_for("the proxy", lambda: proxies_of(process.pid))
    text = wait_for("its seal", lambda: "Seccomp:\t2" in (now := Path(f"/proc/{proxy}/status").read_text()) and now)
    status = dict(line.split(":\t", 1) for line in text.splitlines())
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, status
    assert status["NoNewPrivs"] == "1"
    if glovebox.who == "root":
        assert int(status["Uid"].split()[0]) != 0 and status["Groups"].strip() == "", status
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert left_behind(glovebox, before) == {}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--allow-host", "https://example.org/"], "leave the scheme and the path out"),
        (["--allow-host", "*.example.org"], "leading dot"),
        (["--allow-host", "example.org:0"], "not a port"),
        (["--network", "full", "--allow-host", "example.org"], "leave --allow-host out"),
        (["--network", "some"], "--allow-host"),
        (["--egress-host", "example.org"], "NAME=ADDRESS"),
        (["--egress-allow-private", "example.org:443"], "without a port"),
    ],
)
def test_malformed_rules_are_refused_with_a_hint(root_glovebox: Glovebox, words: list[str], says: str) -> None:
    done = root_glovebox("run", *words, "-c", "0")
    assert done.returncode == 2 and says in done.stderr and "network.allow" not in done.stderr, done


def test_a_refusal_of_which_curl_shows_only_the_status_is_explained(glovebox: Glovebox) -> None:
    ask = ("-l", "bash", "-c", "curl -sS https://other.example.net")
    done = glovebox("run", "--allow-host", "example.org", *ask)
    assert done.returncode == 56 and "the proxy refused a host that no --allow-host names" in done.stderr, done.stderr
    assert "glovebox" not in glovebox("run", "--quiet", "--allow-host", "example.org", *ask).stderr
    unreachable = glovebox(
        "run", "--allow-host", "nothing.invalid", "-l", "bash", "-c", "curl -sS https://nothing.invalid"
    )
    assert "the proxy could not reach it" in unreachable.stderr, unreachable.stderr
