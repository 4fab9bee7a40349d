"""The model's figures on recordings, as in docs/fidelity.md.

    python -m tests.twin.rows

replays those that are kept in tests/recorded/twin, without a Slurm, and prints a row for each.
"""

from __future__ import annotations

from pathlib import Path

from tests.twin.fidelity import compare
from tests.twin.recording import Recording, replayed

RECORDED = Path(__file__).parents[1] / "recorded" / "twin"


def main() -> None:
    for path in sorted(RECORDED.glob("*.json.gz")):
        recording = Recording.read(path)
        print(f"| {path.name.removesuffix('.json.gz')} | {compare(recording, replayed(recording)).row}", flush=True)


if __name__ == "__main__":
    main()
