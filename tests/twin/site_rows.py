"""The model's figures on three hours of a site, as in docs/fidelity.md: given the passes, and of what a site has.

python -m tests.twin.site_rows
"""

from __future__ import annotations

from pathlib import Path

from tests.twin.fidelity import compare
from tests.twin.recording import Recording, replayed
from tests.twin.site_replay import blind_fidelity, replayed_blind

RECORDED = Path(__file__).parents[1] / "recorded" / "twin" / "site"


def main() -> None:
    for path in sorted(RECORDED.glob("*.json.gz")):
        recording, name = Recording.read(path), path.name.removesuffix(".json.gz")
        print(f"| {name} | passes given | {compare(recording, replayed(recording)).row}", flush=True)
        blind = blind_fidelity(*replayed_blind(recording, name.split("-")[1]))
        print(f"| {name} | of a site | {blind.row}", flush=True)


if __name__ == "__main__":
    main()
