"""Records some hours of a site on the Slurm of a lab, twenty times as fast: VERSION-CASE-NODES.json.gz beside this
file. The word calm after the case records the second workload: VERSION-CASE-calm-NODES.json.gz.

    python3 tests/lab/lab.py up forky --name site
    python3 tests/recorded/twin/site/record.py site alone
    python3 tests/lab/lab.py down --name site

TWIN_NODES=8 and TWIN_SEED=38 (26.05.5) or 43 (24.11.5) are those of the smaller ones, whose limits of a QOS differ.
On the host, ten minutes a case, a quarter of an hour with calm. Each case takes a lab of its own: the lab's clock is
hours ahead afterwards. Done once for each version and case: tests/replay/test_site_recordings.py replays what is kept,
without a Slurm.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
LAB = HERE.parents[2] / "lab" / "lab.py"
KEPT = "/var/tmp/twin/site"  # where it is left in the lab


def main() -> None:
    name, *case = sys.argv[1:]
    lab = [sys.executable, str(LAB), "exec", "--name", name, "--"]
    given = [f"{key}={os.environ[key]}" for key in ("TWIN_SEED", "TWIN_NODES") if key in os.environ]
    subprocess.run([*lab, "env", *given, "python", "-m", "tests.twin.site_day", *case], check=True)
    packed = subprocess.run([*lab, "tar", "c", "-C", KEPT, "."], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith(".json.gz") and (file := archive.extractfile(member)):
                (HERE / Path(member.name).name).write_bytes(file.read())


if __name__ == "__main__":
    main()
