"""Folders and owners."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmsched.paths import create, draft_of, dropped, owner, standing_folder
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


@pytest.mark.parametrize("kind", ["file", "link", "link to nothing"])
def test_create__writes_over_nothing(tmp_path, kind):
    """Neither a file of that name nor what a link of that name points to."""
    there, draft = tmp_path / "there", tmp_path / "draft"
    if kind != "link to nothing":
        there.write_text("kept")
    draft.hardlink_to(there) if kind == "file" else draft.symlink_to(there)
    with pytest.raises(FileExistsError), create(draft):
        pass
    assert (there.read_text() if there.exists() else "") == ("" if kind == "link to nothing" else "kept")


def test_draft_of__cannot_be_known_before(tmp_path):
    """Beside the file, hidden, and another one each time."""
    names = {draft_of(tmp_path / "a.gz") for _ in range(9)}
    assert len(names) == 9 and {name.parent for name in names} == {tmp_path}
    with create(draft_of(tmp_path / "a.gz"), 0o640) as file:
        file.write(b"x")
