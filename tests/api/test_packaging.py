"""Files in packaging/: they name files, options and settings that exist. (Checked by hand with systemd-analyze verify,
docker build and caddy validate, none of which the tests' machine has to have.)"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
UNITS = ("glovebox.service", "glovebox-user.service")


@cache
def serve_options(binary: Path) -> list[dict[str, Any]]:
    done = subprocess.run([binary, "help", "--tables"], capture_output=True, text=True, check=True, timeout=60)
    return next(verb for verb in json.loads(done.stdout)["verbs"] if verb["name"] == "serve")["options"]


def known_variables(binary: Path) -> set[str]:
    rows = serve_options(binary)
    named = {row[kind] for row in rows for kind in ("variable", "alias") if row[kind]}
    return named | {"SANDBOX_API_KEY", "SANDBOX_DATA_DIR"}


def check_command(binary: Path, words: list[str]) -> None:
    """`glovebox serve` with options that there are."""
    assert words[:2] == ["glovebox", "serve"], words
    options = {row["name"] for row in serve_options(binary)}
    for word in words[2:]:
        if word.startswith("--"):
            assert word[2:] in options, f"serve has no {word}"


def read_unit(name: str) -> ConfigParser:
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((PACKAGING / name).read_text())
    return unit


def test_units_start_the_program_with_options_it_has(binary: Path) -> None:
    for name in UNITS:
        service = read_unit(name)["Service"]
        program, *words = shlex.split(service["ExecStart"])
        assert program.startswith("/")
        check_command(binary, [Path(program).name, *words])
        assert "--port" in words and "--host" in words
        assert service["Delegate"] == "yes" and service["OOMPolicy"] == "continue"
    assert read_unit(UNITS[0])["Service"]["KillMode"] == "process", "sandboxes would end with the daemon"


def test_unit_forbids_nothing_that_boxes_need() -> None:
    """Each of these keeps a daemon from making boxes, or is inherited by the code in them."""
    forbidden = (
        "PrivateUsers PrivateDevices PrivateNetwork ProtectProc ProcSubset ProtectHostname ProtectKernelTunables "
        "ProtectKernelLogs ProtectControlGroups RestrictNamespaces SystemCallFilter MemoryDenyWriteExecute "
        "RestrictSUIDSGID"
    ).split()
    for name in UNITS:
        assert not set(read_unit(name)["Service"]) & set(forbidden)
    dropped = re.findall(r"^CapabilityBoundingSet=(.*)$", (PACKAGING / UNITS[0]).read_text(), re.MULTILINE)
    assert dropped and all(line.startswith("~") for line in dropped)
    needed = {"CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_SYS_RESOURCE"}
    assert not needed & set(" ".join(dropped).replace("~", "").split())


def dockerfile() -> list[tuple[str, str]]:
    """Instructions and what stands behind them, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (PACKAGING / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines if line.strip()]


def test_dockerfile_copies_what_is_there_and_starts_the_program(binary: Path) -> None:
    sources = [words.split()[:-1] for kind, words in dockerfile() if kind == "COPY" and not words.startswith("--from")]
    assert len(sources) > 5
    for name in (name for names in sources for name in names):
        assert (ROOT / name).exists(), f"COPY {name}: there is no such file"
    copied = {name for names in sources for name in names}
    subdirs = re.findall(r"^subdir\('([^']+)", (ROOT / "meson.build").read_text(), re.MULTILINE)
    needed = {"meson.build", "meson_options.txt", "web", "tools", "images", "docs/glovebox.1", *subdirs}
    missing = {name for name in needed if not any(name == one or name.startswith(one + "/") for one in copied)}
    assert not missing, f"the build needs more than is copied: {missing}"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert not copied & set(ignored)
    entry = json.loads(next(words for kind, words in dockerfile() if kind == "ENTRYPOINT"))
    check_command(binary, entry[entry.index("glovebox") :])
    settings = dict(word.split("=") for kind, words in dockerfile() if kind == "ENV" for word in words.split())
    assert set(settings) <= known_variables(binary)
    health = next(words for kind, words in dockerfile() if kind == "HEALTHCHECK")
    assert "/health" in health and "SANDBOX_API_PORT" in health
    assert settings["SANDBOX_API_PORT"] == next(words for kind, words in dockerfile() if kind == "EXPOSE")


def test_dockerfile_installs_what_the_build_asks_for() -> None:
    rows = re.search(r"build_rows='\n(.*?)'", (ROOT / "tools/setup.sh").read_text(), re.DOTALL)
    assert rows
    wanted = {row.split()[2] for row in rows[1].splitlines() if row} - {"python3-venv", "python3-pip"}
    first = next(words for kind, words in dockerfile() if kind == "RUN")
    assert wanted | {"meson"} <= set(first.split()), wanted - set(first.split())


def test_compose_and_its_settings_fit_together(binary: Path) -> None:
    compose = yaml.safe_load((PACKAGING / "docker-compose.yml").read_text())
    service, proxy = compose["services"]["glovebox"], compose["services"]["caddy"]
    context = (PACKAGING / service["build"]["context"]).resolve()
    assert context == ROOT and (context / service["build"]["dockerfile"]).is_file()
    assert "ports" not in service, "only the proxy may be reached from outside"
    mounted = [volume.split(":")[0] for volume in proxy["volumes"] if volume.startswith(".")]
    assert mounted and all((PACKAGING / name).is_file() for name in mounted)
    volumes = [volume.split(":")[0] for one in (service, proxy) for volume in one["volumes"] if volume[0] != "."]
    assert set(volumes) == set(compose["volumes"])
    example = dict(
        line.split("=", 1)
        for line in (PACKAGING / ".env.example").read_text().splitlines()
        if line and not line.startswith("#")
    )
    known = known_variables(binary)
    assert set(example) - {"SITE"} <= known and set(service["environment"]) <= known
    wanted = set(re.findall(r"\$\{(\w+):\?", (PACKAGING / "docker-compose.yml").read_text()))
    assert wanted <= set(example), "compose wants a setting that the example does not have"
    assert example["SANDBOX_API_KEY"] == "", "an example of a key would be used as a key"
    caddy = (PACKAGING / "Caddyfile").read_text()
    assert f"reverse_proxy glovebox:{service['environment']['SANDBOX_API_PORT']}" in caddy and "{$SITE}" in caddy
    assert service["environment"]["SANDBOX_API_NAMES"].startswith("${SITE"), "Host would be refused"
