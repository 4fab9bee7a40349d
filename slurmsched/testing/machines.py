"""The machines of slurmsched.topology.machines, for plug-ins' tests."""

from slurmsched.topology.machines import all_pairs, machine, machines

__all__ = ["all_pairs", "machine", "machines"]
