"""What a cycle could not do, in the log: each text once, not every minute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from slurmsched.logs import get_logger
from slurmsched.model.pins import Placed
from slurmsched.model.plan import Plan, Receipt
from slurmsched.model.snapshot import Snapshot

MOST = 20  # new texts of a kind in one cycle; of more (a bad hint in every job) only the number is told

log = get_logger()


class Told:
    """Logs warnings, notes and the reason to stop that the cycle before did not have.

    placing: whether slurmsched chooses the nodes of jobs, so that one that missed better GPUs is worth a warning.
    """

    def __init__(self, *, placing: bool) -> None:
        self.placing = placing
        self._before: dict[str, frozenset[str]] = {}

    def __call__(self, snapshot: Snapshot, plan: Plan, receipt: Receipt) -> None:
        """Log what is new of one cycle."""
        self._tell("snapshot.warned", log.warning, snapshot.warnings)
        self._tell("plan.noted", log.info, plan.notes)
        self._missed([each for each in snapshot.placed if each.missed])
        self._tell("apply.stopped", log.warning, [receipt.stopped] if receipt.stopped else [])

    def _missed(self, missed: Sequence[Placed]) -> None:
        """By job where slurmsched chooses nodes; of those that Slurm alone placed only how many."""
        ours = [each for each in missed if self.placing or each.pinned]
        for each in ours[:MOST]:
            log.warning("placement.missed", job_id=each.job_id, nodes=each.nodes, gpus=each.gpus,
                        ratio=round(each.ratio, 3), pinned=each.pinned, better=each.note)  # fmt: skip
        if more := len(ours[MOST:]):
            log.warning("placement.missed", text=f"and {more} more; `slurmsched topology quality` shows all")
        if alone := len(missed) - len(ours):
            log.info(
                "placement.missed", jobs=alone, text="placed by Slurm alone; `slurmsched topology quality` shows them"
            )

    def _tell(self, event: str, say: Callable[..., None], texts: Iterable[str]) -> None:
        distinct = {_same(event, text): text for text in texts}
        before = self._before.get(event, frozenset())
        new = [text for same, text in distinct.items() if same not in before]
        for text in new[:MOST]:
            say(event, text=text)
        if len(new) > MOST:
            say(event, text=f"and {len(new) - MOST} more; `slurmsched plan` shows all")
        self._before[event] = frozenset(distinct)


def _same(event: str, text: str) -> str:
    """What makes a text new: not how many jobs it counts, nor which figure stopped the writes."""
    counts = event == "apply.stopped" or text[:1].isdigit()
    return re.sub(r"\d+(, \d+)*", "#", text) if counts else text
