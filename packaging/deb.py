"""Builds slurmsched_VERSION_all.deb into a folder: `python packaging/deb.py FOLDER`. Needs dpkg-deb, and no root.

For Debian 13 and newer, whose own Python packages it depends on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from stage import HERE, SOURCE, put, stage

SCRIPTS = ("postinst", "prerm", "postrm")
NAMES = {"pyyaml": "python3-yaml"}  # where Debian's name is not python3-NAME
CONTROL = """Package: slurmsched
Version: {version}
Architecture: all
Maintainer: The slurmsched authors <root@localhost>
Section: admin
Priority: optional
Depends: python3 (>= 3.11), {depends}
Recommends: slurm-client, python3-scipy, python3-pymysql, python3-psycopg
Suggests: slurmctld
Description: published GPU scheduling policies for Slurm
 A daemon beside slurmctld that ranks jobs by a policy of the site's choice and
 writes the order as nice or site factor. Dry-run until its configuration says
 otherwise; "slurmsched init" writes one. Slurm itself is not changed.
"""


def version() -> str:
    return re.search(r'__version__ = "([^"]+)"', (SOURCE / "slurmsched/__init__.py").read_text())[1]  # type: ignore[index]


def depends() -> str:
    """Debian's names of the dependencies in pyproject.toml. Their versions are Debian's: a test runs with them."""
    import tomllib

    listed = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.match(r"[\w-]+", line)[0].lower() for line in listed]  # type: ignore[index]
    return ", ".join(NAMES.get(name, f"python3-{name}") for name in names)


def build(folder: Path) -> Path:
    """The package's file in folder."""
    made = folder / f"slurmsched_{version()}_all.deb"
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch, "root")
        root.mkdir(mode=0o755)
        stage(root)
        put(root / "usr/share/doc/slurmsched/copyright", copyright_text())
        put(root / "DEBIAN/control", CONTROL.format(version=version(), depends=depends()))
        files = sorted(path for path in (root / "etc").rglob("*") if path.is_file())
        put(root / "DEBIAN/conffiles", "".join(f"/{path.relative_to(root)}\n" for path in files))
        for name in SCRIPTS:
            put(root / "DEBIAN" / name, (HERE / "debian" / name).read_text(encoding="utf-8"), 0o755)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(made)], check=True, stdout=2
        )
    return made


def copyright_text() -> str:
    """Whose it is, in Debian's form. The licence's text is on every Debian system."""
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
        "Files: *\nCopyright: the slurmsched authors\nLicense: GPL-2+\n"
        " See /usr/share/common-licenses/GPL-2.\n"
    )


if __name__ == "__main__":
    os.umask(0o022)
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    print(build(target))
