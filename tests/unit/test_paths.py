"""Folders and owners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmsched.paths import dropped, owner, standing_folder
from slurmsched.slurm.site import own_name


def test_standing_folder__is_the_nearest_that_exists(tmp_path):
    """Where mkdir would begin."""
    assert standing_folder(tmp_path / "a" / "b" / "file") == tmp_path
    assert standing_folder(tmp_path / "file") == tmp_path


def test_owner__has_a_name_or_a_number(tmp_path, monkeypatch):
    """Files of users that are gone have a number only."""
    assert owner(tmp_path) == own_name()

    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert owner(tmp_path) == str(os.geteuid())


def test_owner__of_nothing_raises(tmp_path):
    """The caller asks for what is there."""
    with pytest.raises(FileNotFoundError):
        owner(tmp_path / "none")


def test_dropped__raises_nothing_where_it_may_not_look(tmp_path, monkeypatch):
    """A folder closed to us has no draft of ours; the error that led there is the one to tell."""

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", denied)
    dropped(tmp_path / "draft")
