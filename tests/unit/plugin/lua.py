"""Slurm's Lua plug-ins in a Lua of our own: what slurm.* does is noted."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

PLUGIN = Path(__file__).parents[3] / "plugin"
VERSIONS = ("lua51", "lua53", "lua54")
SLURM = """
said = { log_user = {}, log_info = {}, log_error = {} }
slurm = { ERROR = -1, SUCCESS = 0 }
for name, list in pairs(said) do
    slurm[name] = function(form, ...) list[#list + 1] = string.format(form, ...) end
end
"""


def runtime(version: str = "lua54") -> Any:
    """A Lua of that version with a table `slurm` as Slurm gives it."""
    lua = import_module(f"lupa.{version}").LuaRuntime(unpack_returned_tuples=True, encoding="utf-8")
    lua.execute(SLURM)
    return lua


def grammar(lua: Any) -> tuple[Any, Any]:
    """slurmsched_hints.lua and slurmsched_keys.lua."""
    folder = PLUGIN / "lua"
    return tuple(lua.eval(f"dofile('{folder / name}')") for name in ("slurmsched_hints.lua", "slurmsched_keys.lua"))


def said(lua: Any, how: str = "log_user") -> list[str]:
    """What was told so far."""
    return list(lua.globals().said[how].values())
