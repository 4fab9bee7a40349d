"""The acts of a replay between cycles, as plain objects."""

from __future__ import annotations

from collections.abc import Sequence

from slurmsched.model.acts import Act


class ActMemory:
    """What db.acts.ActLog is to the daemon. A replay is never cut off: there is nothing to read again."""

    keep_s = 3_600.0

    def begin(self, acts: Sequence[Act]) -> None:
        """These acts are about to move on."""

    def sent(self, acts: Sequence[Act]) -> None:
        """These acts have moved on; who asks for them (slurm.acting) knows them."""

    def stepped(self) -> bool:
        """A replay's clock only goes on."""
        return False

    def known(self) -> tuple[Act, ...]:
        """None from before the replay."""
        return ()
