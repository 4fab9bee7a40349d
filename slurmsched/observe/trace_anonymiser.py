"""Anonymises a trace: names are hashed with a key, ids renumbered, dates moved by whole weeks."""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from slurmsched.errors import InputError
from slurmsched.model.columns import Int64s, Labels
from slurmsched.model.durations import WEEK_S
from slurmsched.model.trace import RecordedTrace

# Column -> first letter of its new names.
HIDDEN = {
    "user": "u",
    "account": "a",
    "name": "n",
    "partition": "p",
    "qos": "q",
    "constraint": "c",
}
# Free text, names of nodes and of software, and ids, which change.
DROPPED = ("comment", "node_list", "partitions", "dependency", "licenses")
# Models that makers sell, with MIG profiles; any other Type of GPU is a name that the site gave.
PUBLIC_GPU_TYPES = re.compile(
    r"(?i)(?:(?:nvidia|amd|intel|tesla|geforce|quadro|instinct|radeon)[_-])*"
    r"(?:a|h|v|p|l|t|k|b|gh|gb|mi|rtx|gtx|titan|max)(?:_?\d{1,4}[a-z]{0,3})"
    r"(?:[_-](?:\d{1,3}gb?|\d+g[._]?\d+gb|sxm\d?|pcie|nvl|super|ti|ada))*"
)
# Architectures and data sets that are published, with a size; any other model may be a name of the site's own.
PUBLISHED = re.compile(
    r"(?i)(?:bert|roberta|vgg|resnets?|resnet|resnext|gpt|llama|mistral|mixtral|qwen|falcon|opt|bloom|t5|vit|swin|clip|"
    r"whisper|transformer|lstm|nmt|cyclegan|dcgan|deepspeech|inception|mobilenet|alexnet|googlenet|squeezenet|densenet|"
    r"efficientnet|yolov?|unet|a3c|recommendation|autoencoder|ncf|neumf|cifar|imagenet|librispeech|wikitext|language|translation)"
    r"(?:[-_. ]?v?\d{1,4}[bmk]?|[-_. ](?:base|large|small|tiny|xl|medium))*(?: \(batch size \d{1,6}\))?"
)
STATES = re.compile(r"[A-Z][A-Z_]*")  # of sacct, without "by UID"
KINDS = re.compile(r"[a-z][a-z0-9_-]{0,20}")
DIGEST_BYTES = 6  # 48 bits: two of a million names meet with a chance of 0.2 %


@dataclass(frozen=True, slots=True)
class TraceAnonymiser:
    """What to hide and how. The same key gives the same names, in every trace.

    key: up to 64 bytes, kept by whoever shares.
    models: hide the models' names too.
    calendar: keep hour and weekday; else no date at all.
    shift_s: added to the calendar.
    """

    key: bytes
    models: bool = False
    calendar: bool = True
    shift_s: float = 0.0

    def apply(self, recorded: RecordedTrace) -> RecordedTrace:
        """The trace without names. Sizes, times between events and states stay: they are its use. So do GPUs that are
        sold, and models that are published."""
        trace = recorded.trace
        columns = HIDDEN | ({"model": "m"} if self.models else {})
        hidden = {name: self.hide(getattr(trace, name), letter) for name, letter in columns.items()}
        hidden["gpu_type"] = self._but(trace.gpu_type, "t", PUBLIC_GPU_TYPES)
        states = Labels.of([name.partition(" ")[0] for name in trace.state.names])
        hidden["state"] = self._but(states.take(trace.state.codes) if len(trace) else trace.state, "x", STATES)
        if not self.models:
            hidden["model"] = self._but(trace.model, "m", PUBLISHED)
        ids = np.arange(1, len(trace) + 1)
        origin_s = recorded.origin_s % WEEK_S + self.shift_s if self.calendar else math.nan
        for name in DROPPED:
            hidden[name] = Labels.constant("", len(trace))
        return replace(
            recorded,
            trace=trace.with_columns(job_id=ids, array_id=_renumbered(trace.array_id), **hidden),
            beside=None,
            origin_s=origin_s,
            warnings=(),
            kind=recorded.kind if KINDS.fullmatch(recorded.kind) else "other",
        )

    def hide(self, labels: Labels, letter: str) -> Labels:
        """The column with each name as letter and hash; the same name of another column gets another."""
        made = Labels.of([self.name(name, letter) for name in labels.names])
        return made.take(labels.codes) if len(labels) else labels

    def _but(self, labels: Labels, letter: str, plain: re.Pattern[str]) -> Labels:
        """As hide, but for names of this form."""
        made = Labels.of([name if plain.fullmatch(name) else self.name(name, letter) for name in labels.names])
        return made.take(labels.codes) if len(labels) else labels

    def name(self, name: str, letter: str) -> str:
        """The hash of a name; "" stays."""
        if not name:
            return ""
        digest = hashlib.blake2b(
            name.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES, key=self.key, person=letter.encode()
        )
        return letter + digest.hexdigest()


def _renumbered(array_id: Int64s) -> Int64s:
    """Arrays by numbers from 1 on in the order of their ids, 0 = none. (J,)."""
    arrays, place = np.unique(array_id, return_inverse=True)
    numbers: Int64s = place.reshape(-1) + (0 if len(arrays) and arrays[0] == 0 else 1)
    return numbers


def new_key() -> bytes:
    """A random key that is not saved: names cannot be made equal to those of another trace."""
    return secrets.token_bytes(32)


def read_key(path: Path) -> bytes:
    """The key of a file, in hexadecimal, made for its owner alone if there is none. Raises InputError."""
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(new_key().hex(), encoding="ascii")
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be used as a key file: {error}", source=str(path)) from error
    if not 16 <= len(key) <= 64:
        raise InputError("must hold 16 to 64 bytes in hexadecimal", source=str(path))
    return key
