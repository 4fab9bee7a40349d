"""Packages that only some commands need, and the extra of slurmsched that installs each."""

from __future__ import annotations

from importlib.util import find_spec

from slurmsched.errors import MissingPackageError

# Names as they are imported. The extras are those of pyproject.toml; docs/install.md lists them with their sizes.
EXTRA_OF = {
    "cryptography": "sweep", "dask": "sweep", "dask_jobqueue": "sweep", "distributed": "sweep",
    "polars": "traces", "prometheus_client": "metrics", "psycopg": "postgres", "pymysql": "mysql",
    "scipy": "solver", "sklearn": "trees", "textual": "top", "zstandard": "traces",
}  # fmt: skip


def is_installed(package: str) -> bool:
    """Whether a package can be found. It is not imported."""
    return find_spec(package) is not None


def check_package(package: str, user: str, *, key: str = "") -> None:
    """Raises MissingPackageError unless the package of an extra is installed.

    user: what needs it, for the error. key: dotted name of the setting that asks for it, if one does.
    """
    if not is_installed(package):
        raise MissingPackageError(package, EXTRA_OF[package], user, key=key)
