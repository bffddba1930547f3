"""The pip settings of the user who runs the daemon, as a box needs them to install packages: printed as JSON.

Runs on the host: `python3 -I pip_settings.py`. Where packages come from is the operator's decision; so it is read from
the operator's own pip (pip.conf files and PIP_* variables) and from nowhere else.

    env    variables for pip in the box
    shown  [host path, path in the box]: certificates and directories of packages, read-only
    hosts  host:port that the box may reach
    proxy  the operator's own proxy, or null
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from glovebox_kernel.pip_place import MISSING, pip_find

PLACE = "/run/pip"
_PORTS = {"https": 443, "http": 80}
# Settings that mean the same in the box. All others (where to install, what to run) are not for it.
_PASSED = ("index-url", "extra-index-url", "no-index", "trusted-host", "timeout", "default-timeout", "retries", "pre")
_FALSE = ("", "0", "no", "off", "false", "n", "f")


class SettingsError(Exception):
    """Settings that cannot be honoured."""


def settings_read() -> dict[str, str]:
    """Option to value: variables win over [install], and that over [global], as in pip."""
    from pip._internal.configuration import Configuration

    configuration = Configuration(isolated=False)
    configuration.load()
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for key, value in configuration.items():
        section, _, name = key.partition(".")
        if section in sections:
            sections[section][name] = str(value)
    return {**sections["global"], **sections["install"], **sections[":env:"]}


def default_index() -> tuple[str, list[str]]:
    """Where pip looks by default, and the host that has the files."""
    from pip._internal.models.index import PyPI

    return PyPI.simple_url, [f"{PyPI.file_storage_domain}:443"]


def host_of(url: str) -> str:
    """host:port of an address, as a rule of the proxy names it."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise SettingsError(f"pip's settings name {parts.scheme}://{parts.hostname}: only http and https can be used")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or _PORTS[parts.scheme]}"


def proxy_of(settings: dict[str, str], hosts: list[str]) -> str | None:
    """The proxy that pip would use: its own setting, or the usual variables, unless no host needs it."""
    proxies = getproxies_environment()
    proxy = settings.get("proxy") or proxies.get("https") or proxies.get("http") or proxies.get("all")
    if not proxy or (not settings.get("proxy") and all(proxy_bypass_environment(host) for host in hosts)):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def settings_make(settings: dict[str, str]) -> dict[str, Any]:
    env = {"PIP_" + name.upper().replace("-", "_"): settings[name] for name in _PASSED if name in settings}
    shown: list[tuple[str, str]] = []
    hosts: list[str] = []
    links: list[str] = []
    if settings.get("no-index", "").lower() in _FALSE:
        if "index-url" not in settings:
            url, hosts = default_index()
            hosts.append(host_of(url))
        for url in f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split():
            hosts.append(host_of(url))
    for link in settings.get("find-links", "").split():
        path = unquote(link[len("file://") :]) if link.startswith("file://") else os.path.expanduser(link)
        if "://" in path:
            hosts.append(host_of(path))
            links.append(path)
        elif os.path.exists(path):
            links.append(f"{PLACE}/links/{len(shown)}")
            shown.append((os.path.realpath(path), links[-1]))
    if links:
        env["PIP_FIND_LINKS"] = " ".join(links)
    if "cert" in settings:
        env["PIP_CERT"] = f"{PLACE}/certificates"
        shown.append((os.path.realpath(settings["cert"]), env["PIP_CERT"]))
    for host in settings.get("trusted-host", "").split():
        hosts.append(host if ":" in host else f"{host}:443")
        hosts.append(host if ":" in host else f"{host}:80")
    return {"env": env, "shown": shown, "hosts": sorted(set(hosts)), "proxy": proxy_of(settings, hosts)}


def main() -> None:
    try:
        if not pip_find():
            raise SettingsError(f"the host's pip settings cannot be read: {MISSING}")
        answer = settings_make(settings_read())
    except SettingsError as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"error": f"the host's pip settings cannot be read: {type(error).__name__}: {error}"}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
