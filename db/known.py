"""What is on record, held in memory between cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import Engine

from slurmsched.config import Config
from slurmsched.db import records, retention
from slurmsched.db.levers import Levers
from slurmsched.db.moves import Moves
from slurmsched.db.services import Services
from slurmsched.model.columns import Floats
from slurmsched.protocols import LeverRecord


@dataclass(slots=True)
class Known:
    """The last cycle, the memory of the jobs in the queue, and what the journal told since.

    last_s: clock of the last snapshot; recorded_s: when its cycle was put on record; retained_s: when old facts were
    dropped last; NaN if never. moves: what moves of jobs cost. history: attained service of completed jobs [GPU s],
    oldest first. journal: as read since the last cycle, None if it was not. doubted: jobs about which it was asked.
    """

    cycle_id: int
    last_s: float
    recorded_s: float
    services: Services
    levers: Levers
    history: Floats
    carry: Mapping[str, Any]
    retained_s: float
    moves: Moves
    journal: list[LeverRecord] | None = None
    doubted: frozenset[int] = frozenset()


def load(engine: Engine, config: Config, held: Known | None) -> Known:
    """What is on record now; `held` itself if no other process has appended a cycle since it was made."""
    with engine.connect() as connection:
        cycle_id, last_s, recorded_s = records.last_cycle(connection)
        if held is not None and held.cycle_id == cycle_id:
            return held
        return Known(
            cycle_id,
            last_s,
            recorded_s,
            records.load_services(connection),
            records.load_levers(connection, config.lever.kind),
            records.history(connection),
            records.last_carry(connection, config.policy.name),
            retention.last_done(connection),
            records.load_moves(connection),
        )
