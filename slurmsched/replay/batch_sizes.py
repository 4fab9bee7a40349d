"""How training jobs change their batch size while they run: the two ways of Shockwave's workload, as numbers.

Source: the simulator of Zheng et al. (Shockwave), NSDI '23, uw-mad-dash/shockwave 8a44f4a27a45. `gns` doubles a batch
size at measured epochs, after the gradient noise scale; `accordion` trains with the largest outside of the epochs that
matter most for accuracy (Agarwal et al., MLSys '21).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

SAMPLES: Mapping[str, int] = {
    "ResNet-18": 50_000, "ResNet-50": 100_000, "Transformer": 10_000, "LM": 59_675, "Recommendation": 117_907,
    "CycleGAN": 6_287, "A3C": 4,
}  # fmt: skip
LAST_CRITICAL = 260  # no epoch after this is another than those before were
LARGEST: Mapping[str, int] = {"ResNet-18": 256, "ResNet-50": 128, "Transformer": 128, "LM": 80, "Recommendation": 8_192}
# model, first batch size, GPUs -> epochs at which the batch size doubles
DOUBLES: Mapping[tuple[str, int, int], tuple[int, ...]] = {
    ("ResNet-18", 16, 1): (31, 41, 51, 71), ("ResNet-18", 32, 1): (21, 31, 51), ("ResNet-18", 64, 1): (11, 31),
    ("ResNet-18", 128, 1): (11,), ("ResNet-18", 16, 2): (21, 31, 91, 111), ("ResNet-18", 32, 2): (11, 21, 41),
    ("ResNet-18", 64, 2): (21, 41), ("ResNet-18", 128, 2): (41,), ("ResNet-18", 16, 4): (11, 21, 81, 91),
    ("ResNet-18", 32, 4): (21, 31, 61), ("ResNet-18", 64, 4): (11, 61), ("ResNet-18", 128, 4): (11,),
    ("ResNet-50", 64, 1): (101,), ("ResNet-50", 32, 2): (101, 111), ("ResNet-50", 64, 2): (81,),
    ("ResNet-50", 32, 4): (131, 221), ("ResNet-50", 64, 4): (191,),
    ("LM", 5, 1): (31, 41, 61, 71), ("LM", 10, 1): (11, 21, 41), ("LM", 20, 1): (11, 41), ("LM", 40, 1): (11,),
    ("LM", 5, 2): (31, 51, 61, 71), ("LM", 10, 2): (11, 31, 41), ("LM", 20, 2): (31, 41), ("LM", 40, 2): (11,),
    ("LM", 5, 4): (11, 31, 71, 91), ("LM", 10, 4): (11, 31, 61), ("LM", 20, 4): (11, 61), ("LM", 40, 4): (61,),
    ("Recommendation", 512, 1): (21, 41, 71, 91), ("Recommendation", 1024, 1): (21, 51, 91),
    ("Recommendation", 2048, 1): (21, 41), ("Recommendation", 4096, 1): (41,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Adapting:
    """A job that may change its batch size. mode: "gns", "accordion", or anything else for one that keeps it.

    first: batch size at its start, 0 = not told. gpus: that it runs on.
    """

    model: str
    mode: str
    first: int
    gpus: int

    def steps_an_epoch(self, batch: int) -> int:
        """Steps of an epoch with this batch size."""
        return math.ceil(SAMPLES.get(self.model, 1) / max(batch, 1))

    def epoch(self, steps: int, batch: int) -> int:
        """Epochs begun after so many steps, the last one counted whole."""
        return math.ceil(steps / self.steps_an_epoch(batch))

    def wanted(self, steps: int, batch: int) -> int:
        """The batch size it is to have after so many steps with this one; the same if nothing is to change."""
        if self.model not in LARGEST or (self.first == LARGEST[self.model] and self.model != "Transformer"):
            return batch
        epoch = self.epoch(steps, batch)
        if self.mode == "gns":
            return 2 * batch if self._by_noise(epoch + 1) > batch else batch
        if self.mode == "accordion" and self.model != "Transformer":
            return self.first if self._critical(epoch) else LARGEST[self.model]
        return batch

    def batches(self, epochs: int) -> tuple[int, ...]:
        """The batch sizes that it has at one time or another in so many epochs, ascending."""
        if self.mode == "gns":
            doubles = DOUBLES.get((self.model, self.first, self.gpus), ())
            return tuple(sorted({self._by_noise(epoch) for epoch in (0, *doubles) if epoch < epochs}))
        each = self.steps_an_epoch(self.first)
        known = min(epochs, LAST_CRITICAL + 1)
        return tuple(sorted({self.first, *(self.wanted(epoch * each, self.first) for epoch in range(known))}))

    def _by_noise(self, epoch: int) -> int:
        passed = sum(epoch >= each for each in DOUBLES.get((self.model, self.first, self.gpus), ()))
        return min(self.first << passed, LARGEST.get(self.model, self.first << passed))

    def _critical(self, epoch: int) -> bool:
        """Whether the epoch is one of those that matter most."""
        if self.model == "ResNet-50":
            return epoch % 30 < 10
        if self.model == "ResNet-18":
            head = 20 if self.first == 256 else 10
            return epoch < head or 150 <= epoch < 160 or 250 <= epoch < 260
        if self.model == "Recommendation":
            return epoch < {512: 30, 1_024: 30, 2_048: 40}.get(self.first, 10)
        return epoch < 10
