"""Layouts of C structs, read from the header file that declares them.

ctypes needs the fields of a struct in order. They differ from release to release of Slurm, so they are read from the
slurm.h of the site.
"""

from __future__ import annotations

import ctypes
import re

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_STRUCT = re.compile(r"\bstruct\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)\s*;")
_TYPEDEF = re.compile(r"\btypedef\s+(?:struct\s+)?(\w+)\s+(\w+)\s*;")
_FIELD = re.compile(r"\s*(?:const\s+)?(?:struct\s+|enum\s+)?(\w+)\s*(\**)\s*(\w+)\s*")
_NUMBERS: dict[str, type] = {
    "bool": ctypes.c_bool, "int8_t": ctypes.c_int8, "int16_t": ctypes.c_int16, "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64, "uint8_t": ctypes.c_uint8, "uint16_t": ctypes.c_uint16, "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64, "int": ctypes.c_int, "time_t": ctypes.c_long, "double": ctypes.c_double,
}  # fmt: skip


class HeaderStructs:
    """The structs that a header declares.

    text: the header. Pointers are read as addresses (c_void_p).
    """

    def __init__(self, text: str) -> None:
        self._text = _COMMENT.sub("", text)
        self._bodies: dict[str, str] = {}
        for tag, body, name in _STRUCT.findall(self._text):
            self._bodies |= {known: body for known in (tag, name) if known}
        self._aliases = {alias: name for name, alias in _TYPEDEF.findall(self._text)}

    def read(self, name: str) -> type[ctypes.Structure]:
        """The struct with this tag or type name. Raises ValueError if a part of it cannot be read."""
        found = self._type(name)
        if not issubclass(found, ctypes.Structure):
            raise ValueError(f"{name} is not a struct")
        return found

    def bit(self, name: str) -> int:
        """The flag that is defined as SLURM_BIT(n). Raises ValueError if there is none."""
        found = re.search(rf"#define\s+{name}\s+SLURM_BIT\((\d+)\)", self._text)
        if found is None:
            raise ValueError(f"the header defines no flag {name}")
        return 1 << int(found[1])

    def _type(self, name: str) -> type:
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name in self._bodies:
            fields = [self._field(text, name) for text in self._bodies[name].split(";") if text.strip()]
            return type(name, (ctypes.Structure,), {"_fields_": fields})
        if name in self._aliases:
            return self._type(self._aliases[name])
        raise ValueError(f"the header declares no {name}")

    def _field(self, text: str, struct: str) -> tuple[str, type]:
        found = _FIELD.fullmatch(text)
        if found is None:
            raise ValueError(f"{struct} has an unknown field: {' '.join(text.split())[:80]}")
        return found[3], ctypes.c_void_p if found[2] else self._type(found[1])
