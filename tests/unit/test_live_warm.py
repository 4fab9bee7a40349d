"""Commands forked by the live tests say what commands started from a shell say."""

from __future__ import annotations

import sys

from tests.live.warm import Warm


def test_warm__a_forked_command_shows_its_warnings():
    """And gives its exit code; nothing of forking itself is on its stderr."""
    server = Warm(sys.executable, [])
    try:
        warns = "import sys, warnings; warnings.warn('on fire', RuntimeWarning); print('out'); sys.exit(7)"
        status, out, err = server.run(warns, ["command"], 60)
        assert (status, out, "RuntimeWarning: on fire" in err) == (7, "out\n", True)
        assert server.run("print('out')", ["command"], 60) == (0, "out\n", "")
    finally:
        server.end()
