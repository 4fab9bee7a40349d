"""Lays slurmsched out in a folder as a package of the system does: `python packaging/stage.py ROOT [--vendor]`.

The program in /usr/lib/slurmsched, its command in /usr/bin, units, user, folders, manual pages, completions, and
plug-ins in /usr/share/slurmsched. --vendor: with all Python packages it needs, for systems that have none of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent
CONFIGS = SOURCE / "site-configs"
COMMAND = """#!/usr/bin/python{version}
import sys

sys.path.insert(0, "/usr/lib/slurmsched")
from slurmsched.cli.main import main

if __name__ == "__main__":  # a worker process imports this file anew
    sys.exit(main())
"""
UNITS = ("slurmsched.service", "slurmsched-tick.service", "slurmsched-tick.timer")
COMPLETIONS = {"bash": "bash-completion/completions/slurmsched", "zsh": "zsh/vendor-completions/_slurmsched",
               "fish": "fish/vendor_completions.d/slurmsched.fish"}  # fmt: skip
PLACED = {  # of site-configs
    "slurmsched.sysusers": "usr/lib/sysusers.d/slurmsched.conf",
    "slurmsched.tmpfiles": "usr/lib/tmpfiles.d/slurmsched.conf",
    "slurmsched.logrotate": "etc/logrotate.d/slurmsched",
}
DEFAULTS = """# Variables of slurmsched's units, such as SLURMSCHED_LOG__LEVEL=debug. No command in a shell reads them:
# settings of the ledger belong into slurmsched.toml, and its password into the file that ledger.password_file names.
"""


def stage(root: Path, *, vendor: bool = False) -> None:
    """Everything into root, which may be there but holds nothing of ours."""
    library = root / "usr/lib/slurmsched"
    install(library, vendor=vendor)
    share = root / "usr/share"
    share.mkdir(parents=True, exist_ok=True)
    shutil.move(library / "share/slurmsched", share / "slurmsched")
    shutil.rmtree(library / "share")  # manual pages of what else is inside would be taken for the system's
    manual(library, share / "man")
    shutil.rmtree(library / "bin", ignore_errors=True)
    version = sysconfig.get_python_version() if vendor else "3"  # compiled packages are for the Python that took them
    put(root / "usr/bin/slurmsched", COMMAND.format(version=version), 0o755)
    for script in ("requeue/slurmsched-requeue", "job/slurmsched-job"):
        shutil.copy(share / "slurmsched/plugin" / script, root / "usr/bin")
    put(root / "etc/default/slurmsched", DEFAULTS, 0o600)
    put(library / "upgrade-ledger", (HERE / "upgrade-ledger").read_text(encoding="utf-8"), 0o755)
    for name in UNITS:
        unit = (CONFIGS / name).read_text(encoding="utf-8").replace("/opt/slurmsched/bin/", "/usr/bin/")
        put(root / "usr/lib/systemd/system" / name, unit)
    for name, place in PLACED.items():
        put(root / place, (CONFIGS / name).read_text(encoding="utf-8"))
    for shell, place in COMPLETIONS.items():
        put(share / place, completion(library, shell))


def install(library: Path, *, vendor: bool) -> None:
    """The wheel, and with vendor what it needs, in a folder for sys.path."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")  # setuptools builds in the source's folder
        shutil.copytree(SOURCE, source, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "build", "tests"))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(library)]
        subprocess.run([*pip, *([f"{source}[solver]"] if vendor else ["--no-deps", str(source)])], check=True)
    for told in library.glob("slurmsched-*.dist-info/direct_url.json"):  # where it was built
        told.unlink()


def manual(library: Path, folder: Path) -> None:
    """Writes the manual pages, by the Python that runs this."""
    code = f"import sys; sys.path.insert(0, {str(library)!r}); from slurmsched.cli.man_pages import write_pages"
    subprocess.run([sys.executable, "-B", "-c", f"{code}; write_pages({str(folder)!r})"], check=True)


def completion(library: Path, shell: str) -> str:
    """The script of `slurmsched completion SHELL`, by the Python that runs this."""
    code = f"import sys; sys.path.insert(0, {str(library)!r}); from slurmsched.cli.main import main; sys.exit(main())"
    argv = [sys.executable, "-B", "-c", code, "completion", shell]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def put(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--vendor", action="store_true")
    options = parser.parse_args()
    os.umask(0o022)
    stage(options.root.absolute(), vendor=options.vendor)
