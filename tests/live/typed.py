"""Runs command lines of slurmsched in one process: JSON lists of words from stdin, answers to stdout."""

from __future__ import annotations

import contextlib
import io
import json
import sys

from slurmsched.cli.main import main


def typed(words: list[str]) -> dict[str, object]:
    """Exit code, and the end of what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return {"words": words, "code": code, "out": out.getvalue()[-4_000:], "err": err.getvalue()[-2_000:]}


if __name__ == "__main__":
    print(json.dumps([typed(words) for words in json.load(sys.stdin)]))
