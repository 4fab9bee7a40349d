"""What the lab takes over from this machine: Debian mirror, CA bundle, apt and pip settings."""

import configparser
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
TOOLS = {"debootstrap": "debootstrap", "unshare": "util-linux", "nsenter": "util-linux"}
PASSED_ENV = re.compile(r"(https?|no|all)_proxy|PIP_.*|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE", re.I)
PASSED_APT = re.compile(r"Acquire::(https?\b|Check-|Retries|ForceIPv)")
REMOTE = ("http", "https", "ftp", "file", "copy", "mirror+file")


class LabError(Exception):
    """A lab command cannot go on; the text says what, where and what to do."""


def need_tools() -> None:
    """Check that this is root on a machine with the tools, installing through apt what is absent."""
    if os.geteuid() != 0:
        raise LabError("the lab makes namespaces and mounts: run it as root")
    missing = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise LabError(f"no apt-get here: install {' '.join(missing)} by hand")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        subprocess.run(["apt-get", "-qq", *command], check=True, env=quiet, stdout=2)


def mirror() -> str:
    """URL of the Debian mirror this machine itself installs from; SLURMSCHED_LAB_MIRROR overrides."""
    if chosen := os.environ.get("SLURMSCHED_LAB_MIRROR"):
        return chosen
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release.get("VERSION_CODENAME", "").strip('"')
    if release.get("ID", "").strip('"') == "debian":
        for uri, suites, components in apt_sources():
            if "main" in components and {codename, "stable", "testing", "sid"} & set(suites):
                return _first_of_list(uri)
    raise LabError("no Debian mirror in this machine's apt sources: set SLURMSCHED_LAB_MIRROR=URL")


def apt_sources() -> Iterator[tuple[str, list[str], list[str]]]:
    """(uri, suites, components) of each binary entry, one-line and deb822 style."""
    folder = Path("/etc/apt")
    for path in [folder / "sources.list", *sorted(folder.glob("sources.list.d/*.list"))]:
        text = path.read_text() if path.exists() else ""
        for entry in re.findall(r"^\s*deb\s+(?:\[[^]]*\]\s*)?(\S+)\s+(\S+)\s+([^#\n]*)", text, re.M):
            yield entry[0], [entry[1]], entry[2].split()
    for path in sorted(folder.glob("sources.list.d/*.sources")):
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.M)
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(\S+):((?:.*\n?)(?:[ \t].*\n?)*)", stanza, re.M))
            if "deb" in fields.get("Types", "").split() and fields.get("Enabled", "yes").strip() != "no":
                for uri in fields["URIs"].split():
                    yield uri, fields["Suites"].split(), fields.get("Components", "").split()


def apt_settings() -> str:
    """The machine's proxy, certificate and date-check settings as the text of an apt.conf."""
    dump = subprocess.run(["apt-config", "dump"], check=True, text=True, capture_output=True).stdout
    return "".join(f"{line}\n" for line in dump.splitlines() if PASSED_APT.match(line))


def passed_environment() -> dict[str, str]:
    """Proxy, TLS and pip settings of this machine, pip's files turned into PIP_* variables."""
    env: dict[str, str] = {}
    for name in [*PIP_FILES, os.environ.get("PIP_CONFIG_FILE", "")]:
        parser = configparser.RawConfigParser()
        parser.read(Path(name).expanduser() if name else [])
        for section in ("global", "install"):
            for key, text in parser.items(section) if parser.has_section(section) else ():
                env["PIP_" + key.upper().replace("-", "_")] = " ".join(text.split())
    env |= {key: text for key, text in os.environ.items() if PASSED_ENV.fullmatch(key)}
    for key in ("PIP_CONFIG_FILE", "PIP_USER", "PIP_TARGET", "PIP_REQUIRE_VIRTUALENV", "PIP_PREFIX"):
        env.pop(key, None)
    return env


def named_paths(env: dict[str, str]) -> list[str]:
    """Files and folders of this machine that those settings name, so that a root can be given them.

    Of a file: index the parent folder, because its pages link to files beside it.
    """
    found = set()
    for word in " ".join(env.values()).split():
        path = Path(urlsplit(word).path).parent if word.startswith("file:") else Path(word)
        if path.is_absolute() and len(path.parts) > 1 and "/etc/ssl" not in map(str, path.parents) and path.exists():
            found.add(str(path))
    return sorted(found)


def _first_of_list(uri: str) -> str:
    """The mirror itself: debootstrap does not know apt's mirror+file lists."""
    scheme, _, path = uri.partition(":")
    if scheme not in REMOTE:
        raise LabError(f"cannot use the apt source {uri}: set SLURMSCHED_LAB_MIRROR=URL")
    if scheme == "mirror+file":
        return Path(path.removeprefix("//")).read_text().split()[0]
    return uri
