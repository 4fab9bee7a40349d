"""Peak bandwidth by model."""

from __future__ import annotations

import numpy as np
import pytest

from slurmsched.model import LinkKind
from slurmsched.topology.gpu_links import MODELS, bandwidth, is_amd, model_of


@pytest.mark.parametrize(
    ("gpu_type", "lane_gb_per_s", "pcie"),
    [
        ("p100", 20.0, 3), ("Tesla V100-SXM2-32GB", 25.0, 3), ("nvidia_a100-sxm4-80gb", 25.0, 4), ("A800", 25.0, 4),
        ("NVIDIA RTX A6000", 14.0625, 4), ("h100", 25.0, 5), ("NVIDIA GH200 480GB", 25.0, 5), ("b200", 50.0, 5),
        ("mi100", 46.0, 4), ("AMD Instinct MI250X", 50.0, 4), ("mi300x", 64.0, 5), ("mi300a", 128.0, 5),
        ("NVIDIA L40S", 0.0, 4), ("geforce_rtx_4090", 0.0, 4), ("rtx6000", 25.0, 3),
        ("NVIDIA RTX 6000 Ada Generation", 0.0, 4), ("rtx3090", 14.0625, 4), ("rtx4090", 0.0, 4),
        ("rtxa6000", 14.0625, 4), ("rtx2080ti", 25.0, 3), ("titanrtx", 25.0, 3), ("gtx1080ti", 0.0, 3),
        ("teslav100s", 25.0, 3), ("rtxpro6000", 0.0, 5), ("rtx6000ada", 0.0, 4), ("titanx", 0.0, 3),
    ],
)  # fmt: skip
def test_model_of__by_any_spelling(gpu_type, lane_gb_per_s, pcie):
    """Slurm types and vendors' names find their family."""
    found = model_of(gpu_type)
    assert found is not None
    assert (lane_gb_per_s, pcie) == (found.lane_gb_per_s, found.pcie)


@pytest.mark.parametrize("gpu_type", ["", "tesla", "gpu", "a1000x", "xh100x", "rtx", "prox", "amd"])
def test_model_of__unknown_stays_unknown(gpu_type):
    """No model is guessed."""
    assert model_of(gpu_type) is None


def test_bandwidth__by_kind_and_lanes():
    """Lanes times the lane's rate; PCIe of the generation by kind of path, PIX the fastest; unknown stays 0."""
    kind = np.array([LinkKind.NVLINK, LinkKind.PIX, LinkKind.SYS, LinkKind.UNKNOWN], np.int8)
    lanes = np.array([12, 0, 0, 0], np.int16)
    assert bandwidth(kind, lanes, "a100").tolist() == [300.0, 31.5, 21.0, 0.0]
    assert bandwidth(kind, lanes, "").tolist() == [0.0, 0.0, 0.0, 0.0]


def test_models__each_names_its_source():
    """Every figure says where it is from."""
    assert [model.pattern for model in MODELS if len(model.source) < 10] == []


def test_is_amd__tells_xgmi_from_nvlink():
    """By the model's name."""
    assert [is_amd(name) for name in ("mi250", "AMD Instinct MI300X", "a100", "mixed")] == [True, True, False, False]
