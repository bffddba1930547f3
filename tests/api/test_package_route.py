"""Packages over HTTP: one install, reported as any run is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.service import Service, StartService
from support.wheels import make_wheel


@pytest.fixture
def shop(make_service: StartService, tmp_path: Path) -> Service:
    """A service whose operator has one wheel and no index."""
    make_wheel(tmp_path, "parcel", "1.0", {"parcel.py": "content = 'a parrot'\n"})
    return make_service(env={"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)})


def test_a_package_is_there_at_once_for_this_sandbox_alone(shop: Service) -> None:
    ann = shop.client("ann")
    missing = ann.post("/sandbox/p/execute", {"code": "import parcel"}).json()
    assert missing["error"]["name"] == "ModuleNotFoundError"
    assert missing["error"]["traceback"].endswith("POST /sandbox/p/pip/install with the package parcel]\n")
    answer = ann.post("/sandbox/p/pip/install", {"packages": ["parcel>=1"]})
    assert answer.status == 200, answer
    assert answer.json()["status"] == "ok"
    assert answer.json()["installed"] == [{"name": "parcel", "version": "1.0"}]
    assert ann.execute("p", "import parcel; parcel.content")["result"]["text/plain"] == "'a parrot'"
    assert ann.post("/sandbox/other/execute", {"code": "import parcel"}).json()["status"] == "error"
    assert shop.client("bob").post("/sandbox/p/execute", {"code": "import parcel"}).json()["status"] == "error"


def test_an_install_streams_and_ends_once(shop: Service) -> None:
    ann = shop.client("ann")
    body = json.dumps({"package": "parcel", "stream": True}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
    answer = ann.request("POST", "/sandbox/s/pip/install", body, headers)
    events = [json.loads(line) for line in answer.body.decode().splitlines() if line.strip()]
    assert [event["event"] for event in events].count("result") == 1 and events[-1]["event"] == "result", events
    assert any("parcel" in event.get("text", "") for event in events)
    assert events[-1]["result"]["installed"][0]["name"] == "parcel"
    lost = ann.post("/sandbox/s/pip/install", {"packages": ["no-such-package"]}).json()
    assert lost["status"] == "error" and lost["installed"] == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"packages": []},
        {"packages": "parcel"},
        {"packages": ["--index-url=http://evil.example"]},
        {"packages": ["-e ."]},
        {"packages": ["../parcel"]},
        {"packages": ["parcel @ file:///etc"]},
        {"packages": ["parcel\n--pre"]},
        {"packages": ["parcel"], "detach": True},
        {"packages": ["parcel"], "index": "http://evil.example"},
    ],
)
def test_only_names_of_packages_are_taken(service: Service, body: object) -> None:
    answer = service.client("ann").post("/sandbox/names/pip/install", body)
    assert answer.status == 400 and answer.json()["detail"], answer
