"""Writes the keys of hints for Slurm's Lua plug-ins: `python packaging/hints_lua.py > FILE`."""

from __future__ import annotations

import json

from slurmsched.model.hints import KEYS, Key


def table() -> str:
    """plugin/lua/slurmsched_keys.lua, from the table of keys."""
    rows = "".join(f"    {{ {_fields(key)} }},\n" for key in KEYS)
    return (
        "-- Written by `python packaging/hints_lua.py`. kind: the parser of slurmsched_hints.lua.\n"
        f"return {{\n{rows}}}\n"
    )


def _fields(key: Key) -> str:
    said = {"name": key.name, "kind": key.parse.__name__, "example": key.example, "meaning": key.meaning}
    return ", ".join(f"{name} = {json.dumps(text)}" for name, text in said.items())


if __name__ == "__main__":
    print(table(), end="")
