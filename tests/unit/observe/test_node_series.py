from __future__ import annotations

from pathlib import Path

import pytest

from slurmsched.errors import InputError
from slurmsched.observe.node_series import read_series

ROWS = """time,active,total
2017-10-03 00:00:00,3,9
2017-10-03 00:09:00,5,9
2017-10-03 00:31:00,1,8
"""


def test_read_series__most_of_each_step(tmp_path: Path) -> None:
    """Ten minutes a step; steps without a row are as the one before. Unix seconds say the same."""
    (tmp_path / "a.csv").write_text(ROWS)
    active, total = read_series(tmp_path / "a.csv")
    assert (active.tolist(), total.tolist()) == ([5.0, 5.0, 5.0, 1.0], [9.0, 9.0, 9.0, 8.0])
    (tmp_path / "b.csv").write_text("time,active,total\n600,3,9\n1140,5,9\n2460,1,8\n")
    assert read_series(tmp_path / "b.csv")[0].tolist() == active.tolist()


@pytest.mark.parametrize(
    ("text", "said"), [("time,active\n1,2\n", "no column total"), ("time,active,total\nnoon,1,2\n", "noon"),
                       ("time,active,total\n", "no row"), ("time,active,total\n1,x,2\n", "active")],
)  # fmt: skip
def test_read_series__says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    """File and line of what cannot be read."""
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_series(tmp_path / "a.csv")
