"""GPUs of a node in slurmd's log or in the output of `slurmd -G`, in all spellings.

GRES[gpu] Type:a100 Count:1 Cores(256):0-63 Links:-1,0 Flags:HAS_FILE File:/dev/nvidia0 UniqueId:(null)
slurmd: Gres Name=gpu Type=a100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Cores=0-31 CoreCnt=64 Links=-1,4
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slurmsched.model.gpu_topology import GpuTopology
from slurmsched.plain_text import pluralize
from slurmsched.topology.gpu_links import GpuDevice, class_of_devices
from slurmsched.topology.topology_text import clean, comma_parts, hosts_or_none, numbers_or_none

_LINE = re.compile(r"(?:GRES\[gpu\]|Gres Name=gpu)(?=\s)(.*)")
_FIELD = re.compile(r"(\w+)(?:\(\d+\))?[:=](\S*)")
_FINAL = re.compile(r"Gres Name=gpu(?=\s)")
# What slurmd prints above GPUs that it does not use in this form. Source: gres_gpu.c of 21.08 to 26.05.
_UNUSED = re.compile(r"Discarding the following|Ignoring file-less|are being ignored|mismatching Cores or Links|"
                     r"\[slurm\|gres\]\.conf:|(?<![\w-])system:\s*$|gres_list_conf")  # fmt: skip
_PLACE = re.compile(r"(-?\d{1,9},)*-?\d{1,9}")
MOST_DEVICES = 1024


# slurmd's word for the environment variables that jobs get -> the flag of gres.conf.
_VARIABLES = {"env_nvml": "nvidia_gpu_env", "env_rsmi": "amd_gpu_env", "env_oneapi": "intel_gpu_env",
              "env_opencl": "opencl_env"}  # fmt: skip


def read_slurmd_log(text: str, name: str = "", gpu_type: str = "") -> GpuTopology:
    """The class of node whose slurmd wrote this. If a device occurs again after a restart, its last line counts.

    The index of a device is shown, or is the place of -1 in its Links, or else follows from the order of the lines.

    gpu_type: name of the model, for the bandwidth; "" = Slurm's Type.
    """
    devices, warnings = _read_devices(text)
    made = class_of_devices(name, devices, warnings)
    return replace(made, gpu_type=gpu_type) if gpu_type and not made.gpu_type else made


def slurmd_devices(text: str) -> tuple[GpuDevice, ...]:
    """The devices by index, with their flags for gres.conf; () if an index is missing."""
    devices, _ = _read_devices(text)
    if sorted(devices) != list(range(len(devices))):
        return ()
    return tuple(replace(devices[i], flags=_flags(devices[i].flags)) for i in range(len(devices)))


def _flags(words: Sequence[str]) -> tuple[str, ...]:
    """The flags for gres.conf. The default, variables of every vendor, needs no flag."""
    return () if "env_default" in words else tuple(flag for word, flag in _VARIABLES.items() if word in words)


def _read_devices(text: str) -> tuple[dict[int, GpuDevice], tuple[str, ...]]:
    """Devices by index, and warnings."""
    rows: dict[tuple[str, ...], tuple[int, GpuDevice]] = {}
    matches, unused = _used(clean(text))
    for at, match in enumerate(matches):
        fields = {key.lower(): "" if value == "(null)" else value for key, value in _FIELD.findall(match[1])}
        for index, device in _devices(fields):
            key = (*device.files, device.unique_id) if device.files or device.unique_id else (str(at), str(index))
            rows[key] = (index, device)
    devices, warnings = _by_index(rows)
    remark = f"slurmd did not use {pluralize(unused, 'GPU')} that it lists; left out"
    return devices, (*warnings, *((remark,) if unused else ()))


def _used(text: str) -> tuple[list[re.Match[str]], int]:
    """The lines of GPUs that slurmd uses, and the number of others.

    If there are final lines "Gres Name=gpu", only those. Otherwise the lines that are not under a remark that they are
    left out; if any of them has a file, only those with one."""
    used, unused, dropping = list[re.Match[str]](), 0, False
    final = _FINAL.search(text) is not None
    for line in text.split("\n"):
        match = _LINE.search(line)
        if match is None:
            dropping = _UNUSED.search(line) is not None or (dropping and not line.strip())
        elif dropping or (final and not _FINAL.search(line)):
            unused += dropping
        else:
            used.append(match)
    filed = [match for match in used if re.search(r"File[:=](?!\(null\))\S", match[1])]
    return filed or used, unused + (len(used) - len(filed) if filed else 0)


def _devices(fields: Mapping[str, str]) -> list[tuple[int, GpuDevice]]:
    """The devices of one line with their indices, -1 = unknown. A line with several files is several devices."""
    files = hosts_or_none(fields.get("file", "")) or ()
    links = tuple(map(int, fields["links"].split(","))) if _PLACE.fullmatch(fields.get("links", "")) else ()
    device = GpuDevice(
        fields.get("type", ""), files, numbers_or_none(fields.get("cores", "")) or (), links,
        tuple(flag.lower() for flag in comma_parts(fields.get("flags", ""))), fields.get("uniqueid", ""),
    )  # fmt: skip
    shown = fields.get("index", "")
    index = int(shown) if shown.isdecimal() and len(shown) < 5 else links.index(-1) if links.count(-1) == 1 else -1
    count = fields.get("count", "1")
    count_of = min(int(count), MOST_DEVICES) if count.isdecimal() and len(count) < 6 else 1
    if count_of == 1 or device.mig:
        return [(index, device)]
    each = [(file,) for file in files] if len(files) == count_of else [()] * count_of
    return [
        (index + at if index >= 0 else -1, replace(device, files=of_one, links=())) for at, of_one in enumerate(each)
    ]


def _by_index(rows: Mapping[tuple[str, ...], tuple[int, GpuDevice]]) -> tuple[dict[int, GpuDevice], tuple[str, ...]]:
    """Devices by index. Those without one follow in the order of their lines."""
    if not rows:
        return {}, ("no line of slurmd about GPUs found",)
    devices: dict[int, GpuDevice] = {}
    warnings = []
    for index, device in rows.values():
        if index >= 0 and index in devices:
            warnings.append(f"index {index} occurs on two devices; the first counts")
        elif index >= 0:
            devices[index] = device
    for index, device in rows.values():
        if index < 0:
            devices[max(devices, default=-1) + 1] = device
    return devices, tuple(warnings)
