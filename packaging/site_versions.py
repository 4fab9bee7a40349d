"""Lists the versions of the documentation site: `python packaging/site_versions.py build/site`.

Each version has a folder of its own below the given one. Writes `versions.json`, which the pages' version menu reads,
and an `index.html` that leads to the newest version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version


def site_versions(site: Path) -> list[str]:
    """Names of the folders that are versions, the newest first."""
    found = []
    for folder in site.iterdir():
        try:
            found.append((Version(folder.name), folder.name))
        except InvalidVersion:
            continue
    return [name for _, name in sorted(found, reverse=True)]


def write_versions(site: Path) -> None:
    """Writes versions.json and index.html. Raises FileNotFoundError if there is no version."""
    names = site_versions(site)
    if not names:
        raise FileNotFoundError(f"{site} has no folder that is named as a version; run make docs")
    entries = [{"version": name, "title": name, "aliases": ["latest"] if name == names[0] else []} for name in names]
    (site / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={names[0]}/index.html">\n'
    (site / "index.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write_versions(Path(sys.argv[1]))
