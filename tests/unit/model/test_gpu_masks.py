"""Sets of GPUs of one node as bit masks."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model.gpu_masks import bit_counts


@pytest.mark.parametrize("numpy_2", [True, False])
def test_bit_counts__counts_each_mask_whatever_numpy_has(monkeypatch: pytest.MonkeyPatch, numpy_2: bool) -> None:
    """The same for one mask and for many, of any shape, with and without the function of numpy 2."""
    if not numpy_2:
        monkeypatch.delattr(np, "bitwise_count", raising=False)
    masks = np.array([[0, 1, 0b1011], [1 << 62, (1 << 63) - 1, 255]])
    assert bit_counts(masks).tolist() == [[0, 1, 3], [1, 63, 8]]
    assert bit_counts(masks[:, 1]).tolist() == [1, 63]
    assert int(bit_counts(masks[1, 2])) == 8
    assert bit_counts(np.zeros(0, np.int64)).dtype == np.int64
