"""Peak GB/s of one lane in one direction, by GPU model. Where the model is not known, nothing is.

PCIe is the GPU's own x16 slot for PIX. Farther paths share it with others: each kind counts a step less, which gives
their order and no measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slurmsched.model.columns import Floats
from slurmsched.model.topology import Int8s, Int16s, LinkKind

# PCIe x16, one direction, by generation: transfers a second x 16 lanes x 128/130 (gen 6: 242/256). Source: PCI-SIG
# base specifications 3.0 to 6.0.
PCIE = {3: 15.75, 4: 31.5, 5: 63.0, 6: 121.0}

# Share of the slot by kind of path. Source: slurmsched; only the order is known (`nvidia-smi topo -m`, its legend).
PATH = {LinkKind.PIX: 1.0, LinkKind.PXB: 11 / 12, LinkKind.PHB: 10 / 12, LinkKind.NODE: 9 / 12, LinkKind.SYS: 8 / 12}


@dataclass(frozen=True, slots=True)
class Model:
    """What one family of GPUs can do. lane_gb_per_s: one NVLink lane or XGMI link, one direction, 0 = it has none."""

    pattern: str
    lane_gb_per_s: float
    pcie: int
    source: str


# The vendors tell both directions of all lanes; here that is halved and shared out over the lanes.
MODELS = (
    Model("p100", 20.0, 3, "NVIDIA Tesla P100 whitepaper: NVLink 1, 4 lanes, 160 GB/s"),
    Model("v100s?", 25.0, 3, "NVIDIA Tesla V100 whitepaper: NVLink 2, 6 lanes, 300 GB/s"),
    Model("rtx ?6000 ?ada", 0.0, 4, "NVIDIA RTX 6000 Ada datasheet: PCIe 4 x16, no NVLink"),
    Model("(?:rtx ?[68]000|titan rtx|2080(?: ?ti)?)", 25.0, 3, "NVIDIA Turing whitepaper: NVLink 2, 2 lanes, 100 GB/s"),
    Model("(?:a100|a800)", 25.0, 4, "NVIDIA A100 whitepaper: NVLink 3, 12 lanes, 600 GB/s (A800: 8 lanes)"),
    Model("a30", 25.0, 4, "NVIDIA A30 datasheet: NVLink 3, 4 lanes, 200 GB/s"),
    Model("(?:a40|a4500|a5000|a5500|a6000|3090)", 14.0625, 4, "NVIDIA RTX A6000, A40 datasheets: 4 lanes, 112.5 GB/s"),
    Model("(?:gh200|h[12]00|h[82]00|h20)", 25.0, 5, "NVIDIA H100 whitepaper: NVLink 4, 18 lanes, 900 GB/s"),
    Model("(?:gb[23]00|b[123]00)", 50.0, 5, "NVIDIA Blackwell architecture brief: NVLink 5, 18 lanes, 1.8 TB/s"),
    Model("mi[56]0", 46.0, 4, "AMD Radeon Instinct MI60 datasheet: 2 XGMI links, 184 GB/s"),
    Model("mi100", 46.0, 4, "AMD Instinct MI100 brochure: 3 XGMI links, 276 GB/s"),
    Model("mi2[15]0x?", 50.0, 4, "AMD CDNA 2 whitepaper: 100 GB/s an XGMI link"),
    Model("mi300a", 128.0, 5, "AMD CDNA 3 whitepaper: MI300A, two XGMI links a pair, 256 GB/s"),
    Model("mi3(?:00x?|25x?)", 64.0, 5, "AMD CDNA 3 whitepaper: 128 GB/s an XGMI link"),
    Model("mi35[05]x?", 76.8, 5, "AMD CDNA 4 whitepaper: 153.6 GB/s an XGMI link"),
    Model("(?:k[48]0|p4|p40|t4|titan|1080(?: ?ti)?)", 0.0, 3, "NVIDIA datasheets: PCIe 3 x16"),
    Model("(?:a10|a16|l4|l40s?|40[6-9]0|30[6-8]0)", 0.0, 4, "NVIDIA datasheets: PCIe 4 x16 (L4, A10: PCIe 4)"),
    Model("(?:50[6-9]0|pro 6000)", 0.0, 5, "NVIDIA RTX Blackwell whitepaper: PCIe 5 x16"),
)  # fmt: skip


_LINES = "nvidia|amd|geforce|quadro|tesla|instinct|rtx|gtx|titan|pro"
_RUN_TOGETHER = re.compile(rf"(?<![a-z0-9])({_LINES})(?=(?:{_LINES}|[a-z]{{0,2}}\d|x|v))")


def model_of(gpu_type: str) -> Model | None:
    """The family of "a100", "rtx3090", "nvidia_a100-sxm4-80gb" or "NVIDIA H100 80GB HBM3"; None if unknown."""
    words = re.sub(r"[^a-z0-9]+", " ", gpu_type.lower())
    for _ in range(2):  # "rtxpro6000" is two of them and a number
        words = _RUN_TOGETHER.sub(r"\1 ", words)
    return next((model for model in MODELS if re.search(rf"(?<![a-z0-9]){model.pattern}(?![a-z0-9])", words)), None)


def is_amd(gpu_type: str) -> bool:
    """Whether the name is one of AMD's, whose links are XGMI."""
    return (
        re.search(r"(?:^|[^a-z0-9])(?:mi\d{2,3}[ax]?|amd|instinct|gfx\d+\w*)(?:[^a-z0-9]|$)", gpu_type.lower())
        is not None
    )


def bandwidth(kind: Int8s, lanes: Int16s, gpu_type: str) -> Floats:
    """(G, G) float64 [GB/s, one direction], 0 = unknown: by model, link kind and lanes."""
    model = model_of(gpu_type)
    if model is None:
        return np.zeros(kind.shape)
    wired = (kind == LinkKind.NVLINK) | (kind == LinkKind.XGMI)
    share = np.array([PATH.get(LinkKind(k), 0.0) for k in range(max(LinkKind) + 1)])[kind]
    return np.where(wired, lanes * model.lane_gb_per_s, share * PCIE[model.pcie])


def at_least(wide: Floats, kind: Int8s, unwired: Iterable[tuple[int, int]], gpu_type: str) -> Floats:
    """As `bandwidth`, with the least that PCIe has for pairs of which it is told that no NVLink joins them, no more."""
    model, found = model_of(gpu_type), wide.copy()
    for i, j in unwired if model else ():
        if kind[i, j] == LinkKind.UNKNOWN:
            found[i, j] = found[j, i] = min(PATH.values()) * PCIE[model.pcie] if model else 0.0
    return found
