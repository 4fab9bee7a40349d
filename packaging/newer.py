"""Compare what pip installed with the lock: newer.py FREEZE. Prints what differs; exit 0 where nothing does."""

from __future__ import annotations

import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).with_name("constraints.txt")


def main(freeze: str) -> int:
    """1 if a package of the lock is installed in another version."""
    installed, locked = _versions(Path(freeze)), _versions(LOCK)
    moved = sorted(name for name, version in locked.items() if installed.get(name, version) != version)
    for name in moved:
        print(f"{name}: locked {locked[name]}, newest {installed[name]}")
    return int(bool(moved))


def _versions(path: Path) -> dict[str, str]:
    """Version by package of the lines of a file whose markers hold on this Python."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    found = [Requirement(line) for line in lines if line and " @ " not in line]
    here = [one for one in found if one.marker is None or one.marker.evaluate()]
    return {canonicalize_name(one.name): str(one.specifier) for one in here}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
