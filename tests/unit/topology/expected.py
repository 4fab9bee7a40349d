"""The reading of every sample, as a person reads it. links: NV#, PIX ... or XGMI# -> pairs, "all" = every pair."""

from __future__ import annotations

CUBE = {"NV1": "0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7", "NV2": "0-3 0-4 1-2 1-5 2-3 4-7 5-6 6-7"}
HALVES = [0, 0, 0, 0, 1, 1, 1, 1]
DGX1_NICS = "; ".join(
    f"{gpu} {nic}:PIX {far}:PHB"
    for gpu, (nic, far) in enumerate(
        [("mlx5_0", "mlx5_1")] * 2
        + [("mlx5_1", "mlx5_0")] * 2
        + [("mlx5_2", "mlx5_3")] * 2
        + [("mlx5_3", "mlx5_2")] * 2
    )
)
UNKNOWN = None  # of every GPU

# file: GPUs, wired and switch links (others are not listed), NUMA node of each GPU, nearest NICs, warnings hold
WIRED = {
    "001-dgx1-p100.txt": (
        8, {"NV1": "0-1 0-2 0-3 0-4 1-2 1-3 1-5 2-3 2-6 3-7 4-5 4-6 4-7 5-6 5-7 6-7"}, HALVES, DGX1_NICS, (),
    ),
    "002-dgx1-v100.txt": (8, CUBE, HALVES, DGX1_NICS, ()),
    "003-v100x8-vm-phb.txt": (8, CUBE, UNKNOWN, "", ()),
    "004-v100x8-2nic-ragged-tabs.txt": (
        8, {"NV1": "0-1 0-3 1-2 2-5 3-4 4-7 5-6 6-7", "NV2": "0-2 0-7 1-3 1-6 2-3 4-5 4-6 5-7"}, HALVES,
        "2 mlx5_0:PIX; 3 mlx5_0:PIX; 6 mlx5_1:PIX; 7 mlx5_1:PIX", (),
    ),
    "005-v100x4-sxm2.txt": (4, {"NV2": "all"}, [0, 0, 1, 1], "0 NIC0:PIX; 1 NIC0:PIX; 2 NIC1:PIX; 3 NIC1:PIX", ()),
    "006-v100x4-uneven.txt": (4, {"NV1": "0-3 1-2 2-3", "NV2": "0-1 0-2 1-3"}, [1, 1, 1, 1], "", ()),
    "007-summit-ac922-v100x6.txt": (6, {"NV2": "0-1 0-2 1-2 3-4 3-5 4-5"}, [0, 0, 0, 1, 1, 1], "", ()),
    "008-dgx-a100-12nic.txt": (
        8, {"NV12": "all"}, [3, 3, 1, 1, 7, 7, 5, 5],
        "0 mlx5_0:PXB mlx5_1:PXB; 1 mlx5_0:PXB mlx5_1:PXB; 2 mlx5_2:PXB mlx5_3:PXB; 3 mlx5_2:PXB mlx5_3:PXB; "
        "4 mlx5_6:PXB mlx5_7:PXB; 5 mlx5_6:PXB mlx5_7:PXB; 6 mlx5_8:PXB mlx5_9:PXB; 7 mlx5_8:PXB mlx5_9:PXB", (),
    ),
    "009-hgx-a100x4.txt": (4, {"NV4": "all"}, [0, 0, 1, 1], "", ()),
    "010-polaris-a100x4-reversed-numa.txt": (4, {"NV4": "all"}, [3, 2, 1, 0], "1 mlx5_1:PHB; 3 mlx5_0:PHB", ()),
    "011-a100-pcie-one-bridged-pair.txt": (4, {"NV12": "0-1"}, [0, 0, 1, 1], "", ()),
    "012-a100-pcie-pairs-cross-numa.txt": (4, {"NV12": "0-1 2-3"}, [0, 1, 2, 3], "", ()),
    "013-a6000x8-bridge-pairs.txt": (8, {"NV4": "0-1 2-3 4-5 6-7"}, HALVES, "", ()),
    "014-a6000x3-one-bridge.txt": (3, {"NV4": "0-1"}, [0, 0, 0], "", ()),
    "015-bridge-pairs-cut-cpu-lists.txt": (4, {"NV4": "0-1 2-3"}, [0, 0, 1, 1], "", ()),
    "016-rtx4090x8-all-sys.txt": (8, {}, HALVES, "6 NIC0:PHB NIC1:PHB", ()),
    "017-p40x8-two-switches-one-root.txt": (
        8, {"PIX": "0-1 0-2 0-3 1-2 1-3 2-3 4-5 4-6 4-7 5-6 5-7 6-7",
            "PXB": "0-4 0-5 0-6 0-7 1-4 1-5 1-6 1-7 2-4 2-5 2-6 2-7 3-4 3-5 3-6 3-7"}, [0] * 8, "", (),
    ),
    "018-x8-pix-phb-no-affinity-columns.txt": (8, {"PIX": "0-1 2-3 4-5 6-7"}, UNKNOWN, "", ()),
    "019-k80x4-mlx4.txt": (
        4, {"PIX": "0-1 2-3"}, [0] * 4, "0 mlx4_0:PHB; 1 mlx4_0:PHB; 2 mlx4_0:PHB; 3 mlx4_0:PHB", (),
    ),
    "020-mixed-p100x2-soc.txt": (2, {}, [0, 1], "", ()),
    "021-hgx-h100x8-12nic-cut.txt": (
        8, {"NV18": "all"}, HALVES,
        "0 NIC0:PXB; 1 NIC3:PXB; 2 NIC4:PXB; 3 NIC5:PXB; 4 NIC6:PXB; 5 NIC9:PXB; 6 NIC10:PXB; "
        "7 NIC11:PXB", ("no rows of NIC[6-11]",),
    ),
    "022-h100x4-nv6.txt": (4, {"NV6": "all"}, [3, 1, 7, 5], "0 NIC0:PIX; 1 NIC1:PIX; 2 NIC2:PIX; 3 NIC3:PIX", ()),
    "023-gh200x4.txt": (4, {"NV6": "all"}, [0, 1, 2, 3], "", ()),
    "024-gb200x4.txt": (4, {"NV18": "all"}, [0, 0, 1, 1], "", ()),
    "025-gb10-single.txt": (1, {}, [0], "", ()),
    "026-hopper-x4-vm-blank-affinity.txt": (4, {"NV18": "all"}, [0, 1, 1, 1], "", ()),
    "027-l40sx4-stripped-header.txt": (4, {"PIX": "0-1 2-3"}, [0] * 4, "", ()),
    "028-pcie-x6-uneven-split.txt": (6, {"PIX": "0-1 2-3 4-5"}, [0, 0, 0, 0, 1, 1], "", ()),
    "029-rtx3090x2-numa-na.txt": (2, {}, [-1, 1], "", ()),
    "030-x2-nv2-numa-na.txt": (2, {"NV2": "all"}, UNKNOWN, "", ()),
    "031-h100-vm-ansi-escapes.txt": (1, {}, [0], "", ()),
    "032-h100-mig-ansi-escapes.txt": (1, {}, [0], "", ()),
    "033-x2-4nic-roce-names.txt": (2, {}, [0, 1], "0 NIC0:PHB NIC1:PHB; 1 NIC2:PHB NIC3:PHB", ()),
    "034-a800x8-nic-interleaved-cut.txt": (
        8, {"NV8": "all"}, [0, 0, 0, 0, 1, 1, 1, -1],
        "0 NIC2:PIX; 1 NIC4:PIX; 2 NIC6:PIX; 3 NIC8:PIX; 4 NIC1:PIX; 5 NIC3:PIX; 6 NIC5:PIX",
        ("left out: GPU7", "no rows of NIC[0-8]"),
    ),
    "035-rtx4090d-x2-node.txt": (2, {}, [1, 1], "", ()),
    "040-rocm-mi100x4-pcie.txt": (4, {"NODE": "0-2 1-3", "SYS": "0-1 0-3 1-2 2-3"}, [7, 1, 7, 1], "", ()),
    "041-rocm-mi300xx8.txt": (8, {"XGMI1": "all"}, HALVES, "", ()),
    "042-rocm-apu-x4-numa-each.txt": (4, {"XGMI1": "all"}, [0, 1, 2, 3], "", ()),
    "043-rocm-linktype-only.txt": (8, {"XGMI": "all"}, UNKNOWN, "", ()),
    "067-slurmd-log-links-mig.txt": (7, {}, UNKNOWN, "", ("no row of GPU[0-2,6]",)),
}  # fmt: skip

# file: PCIe switch groups
SWITCHES = {
    "002-dgx1-v100.txt": [0, 0, 1, 1, 2, 2, 3, 3],  # by the NIC on each switch
    "005-v100x4-sxm2.txt": [0, 0, 1, 1],
    "017-p40x8-two-switches-one-root.txt": HALVES,
    "018-x8-pix-phb-no-affinity-columns.txt": [0, 0, 1, 1, 2, 2, 3, 3],
    "019-k80x4-mlx4.txt": [0, 0, 1, 1],
    "022-h100x4-nv6.txt": [-1] * 4,
    "027-l40sx4-stripped-header.txt": [0, 0, 1, 1],
    "028-pcie-x6-uneven-split.txt": [0, 0, 1, 1, 2, 2],
}

# file: device numbers of each class of nodes
DEVICES = {
    "064-gres-autodetect-nvml-mixed.conf": {"tux[0-7]": [], "tux[8-11]": [], "tux[12-15]": [0, 1, 2, 3]},
    "065-gres-explicit-cores-out-of-service.conf": {"every node": [0, 1, 3]},
    "066-gres-nodename-ranges.conf": {"tux[0-2,4-15]": [0, 1, 2, 3], "tux3": [0, 2, 3]},
}

# file: kind, and cell -> level, nodes under it
FABRICS = {
    "061-topology-block.conf": ("block", {
        "b1": (1, "node[01-04]"), "b8": (1, "node[29-32]"), "b[1-2]": (2, "node[01-08]"), "b[7-8]": (2, "node[25-32]"),
        "b[1-4]": (3, "node[01-16]"), "b[5-8]": (3, "node[17-32]"), "b[1-8]": (4, "node[01-32]"),
    }, 15, 32),
    "060-topology-tree-2level.conf": ("tree", {
        "leaf100": (1, "peta[10000-10019]"), "leaf119": (1, "peta[10380-10399]"), "grp10": (2, "peta[10000-10199]"),
        "grp11": (2, "peta[10200-10399]"), "root": (3, "peta[10000-10399]"),
    }, 23, 400),
    "063-topology-block-rack-comments.conf": ("block", {
        "rack11": (1, "srv[1101-1108]"), "rack[11-12]": (2, "srv[1101-1108,1201-1208]"),
        "rack[51-52,61-62]": (3, "srv[5101-5108,5201-5208,6101-6108,6201-6208]"),
    }, 21, 96),
    "070-ibnetdiscover-3leaf-snippet.txt": ("tree", {
        "leaf01": (1, "node[001-005,010-011]"), "leaf[02-03]": (1, "node[006-009]"),
        "spine[01-02]": (2, "node[001-011]"),
    }, 3, 11),
}  # fmt: skip
