"""Records the twin test's workloads on the Slurm of a lab that is up: VERSION-CASE.json.gz beside this file.

    python3 tests/lab/lab.py up forky --name twin
    python3 tests/recorded/twin/record.py twin
    python3 tests/lab/lab.py down --name twin

On the host, twelve minutes a lab. A recording replaces the last one of its version, case and TWIN_SEED; its row goes to
docs/fidelity.md (the workload of srsf is that of the next seed). It fails as the live tests do where the model is out
of their bounds.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
LAB = HERE.parents[1] / "lab" / "lab.py"
SEED = f"TWIN_SEED={os.environ.get('TWIN_SEED', '1')}"
TESTS = tuple(f"tests/live/test_twin{of}.py" for of in ("", "_limits", "_arrays", "_rules"))
TEST = ("env", SEED, "python", "-m", "pytest", "-m", "live", *TESTS, "-s", "-q")
KEPT = "/var/tmp/twin"  # where the test leaves them in the lab


def main() -> None:
    lab = [sys.executable, str(LAB), "exec", "--name", sys.argv[1], "--"]
    played = subprocess.run([*lab, *TEST], check=False)
    packed = subprocess.run([*lab, "tar", "c", "-C", KEPT, "."], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith(".json.gz") and (file := archive.extractfile(member)):
                (HERE / Path(member.name).name).write_bytes(file.read())
    raise SystemExit(played.returncode)


if __name__ == "__main__":
    main()
