"""Descriptions of the service: /metrics, /openapi.json, /docs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import jsonschema
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families
from support.service import Answer, Service

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read_metrics(answer: Answer) -> Samples:
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer
    samples: Samples = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        assert family.documentation and family.type != "unknown", family
        for sample in family.samples:
            place = (sample.name, tuple(sorted(sample.labels.items())))
            assert place not in samples, f"{place} is there twice"
            samples[place] = sample.value
    return samples


def as_operator(service: Service, path: str) -> Answer:
    """Over the UNIX socket, without a key."""
    connection = HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(60)
    connection.sock.connect(service.daemon.socket.removesuffix(".sock") + "-api.sock")
    connection.request("GET", path)
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def growth(before: Samples, after: Samples, name: str, **labels: str) -> float:
    place = (name, tuple(sorted(labels.items())))
    return after[place] - before.get(place, 0)


def test_metrics_count_what_happens(service: Service) -> None:
    ann = service.client("ann")
    before = read_metrics(ann.get("/metrics"))
    ann.execute("metrics", "1 + 1")
    assert ann.post("/sandbox/metrics/execute", {"code": "1 / 0"}).json()["status"] == "error"
    assert service.stranger().get("/sandboxes").status == 401
    after = read_metrics(ann.get("/metrics"))
    assert growth(before, after, "glovebox_runs_started_total") == 2
    assert growth(before, after, "glovebox_runs_finished_total", status="ok") == 1
    assert growth(before, after, "glovebox_runs_finished_total", status="error") == 1
    assert growth(before, after, "glovebox_run_duration_seconds_count") == 2
    assert growth(before, after, "glovebox_run_duration_seconds_bucket", le="+Inf") == 2
    assert growth(before, after, "glovebox_http_refused_total", reason="unauthorized") == 1
    assert growth(before, after, "glovebox_http_requests_total") == 4
    assert growth(before, after, "glovebox_http_bytes_total", direction="in") > 400
    assert growth(before, after, "glovebox_sandboxes", state="idle") == 1
    assert growth(before, after, "glovebox_key_sandboxes", key="ann") == 1
    made = sum(growth(before, after, "glovebox_kernels_started_total", how=how) for how in ("forked", "cold"))
    assert made >= 1 and after["glovebox_pool_wanted", ()] == 1
    assert 1 << 20 < after["process_resident_memory_bytes", ()] < 1 << 30
    buckets = [value for (name, _), value in after.items() if name == "glovebox_run_duration_seconds_bucket"]
    assert buckets == sorted(buckets) and len(buckets) > 5


def keys_shown(samples: Samples) -> set[str]:
    return {dict(labels)["key"] for _, labels in samples if "key" in dict(labels)}


def test_metrics_show_a_key_only_to_itself_and_to_the_operator(service: Service) -> None:
    assert service.stranger().get("/metrics").status == 401
    for name in ("ann", "bob"):
        assert keys_shown(read_metrics(service.client(name).get("/metrics"))) == {name}
    assert keys_shown(read_metrics(as_operator(service, "/metrics"))) == {"ann", "bob"}


def operations(description: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_openapi_is_valid_and_complete(service: Service) -> None:
    answer = service.stranger().get("/openapi.json")
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
    description = answer.json()
    validate(description)
    seen = set()
    for method, path, operation in operations(description):
        seen.add(f"{method.upper()} {path}")
        where = f"{method} {path}"
        assert operation["summary"], where
        answers = operation["responses"]
        assert any(status < "400" for status in answers), where
        assert ("security" in operation) == ("401" not in answers), where
        body = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if body and "example" in body:
            schema = {**body["schema"], "components": description["components"]}
            jsonschema.validate(body["example"], schema)
    assert {
        "POST /sandbox/{user_id}/create",
        "POST /sandbox/{user_id}/execute",
        "POST /sandbox/{user_id}/shell",
        "DELETE /sandbox/{user_id}/destroy",
        "GET /health",
    } <= seen
    content = description["paths"]["/sandbox/{user_id}/execute"]["post"]["responses"]["200"]["content"]
    assert set(content) == {"application/json", "text/event-stream", "application/x-ndjson"}


def test_answers_have_the_shapes_of_openapi(service: Service) -> None:
    """Not every answer: the two shapes that clients build on, and the one of every error."""
    ann = service.client("ann")
    schemas = ann.get("/openapi.json").json()["components"]
    components = {"components": schemas}
    result = ann.execute("shapes", "print('x'); 6 * 7")
    jsonschema.validate(result, {**schemas["schemas"]["Result"], **components})
    assert set(result) <= set(schemas["schemas"]["Result"]["properties"])
    sandbox = ann.get("/sandbox/shapes").json()
    jsonschema.validate(sandbox, {**schemas["schemas"]["Sandbox"], **components})
    missing = ann.get("/sandbox/nobody")
    assert missing.status == 404 and missing.headers["Content-Type"] == "application/problem+json"
    jsonschema.validate(missing.json(), {**schemas["schemas"]["Problem"], **components})
    with_stream = ann.post("/sandbox/shapes/execute", {"code": "print('x')", "stream": True})
    for line in with_stream.body.decode().splitlines():
        if line.startswith("data: "):
            jsonschema.validate(json.loads(line[6:]), {**schemas["schemas"]["Event"], **components})


def test_page_is_one_file_that_runs_nothing_else(service: Service) -> None:
    stranger = service.stranger()
    answer = stranger.get("/docs")
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    page = answer.body.decode()
    assert len(answer.body) < 20000
    assert not re.search(r"(?:src|href|action)=[\"']?(?:https?:)?//", page), "the page loads something from elsewhere"
    assert "innerHTML" not in page and not re.search(r"\son\w+=|\sstyle=", page.split("<script>")[0])
    policy = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        inline = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline]
        assert policy[rule] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'" and "unsafe" not in answer.headers["Content-Security-Policy"]
    home = stranger.get("/")
    assert home.status == 302 and home.headers["Location"] == "/docs"
    head = stranger.request("HEAD", "/docs")
    assert head.status == 200 and head.body == b"" and head.headers["Content-Length"] == str(len(answer.body))
    assert stranger.post("/docs", {}).status == 405
