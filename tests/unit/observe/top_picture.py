"""The picture of docs/top.md: python -m tests.unit.observe.top_picture docs/top.svg docs/top-gpus.svg"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from slurmsched.config_file import parse_config
from slurmsched.observe.top_app import TopApp
from slurmsched.observe.web.frame import Frame
from slurmsched.planning.planner import Planner
from tests.unit.observe.survey.survey_site import node, site
from tests.unit.observe.web.frame_samples import NOW_S

USERS = ("ann", "bob", "carol", "dave")


def busy() -> Frame:
    """A site with a queue: thirty jobs wait for two DGX-1V nodes; the third node drains."""
    runs = {"state": "RUNNING", "start_s": NOW_S - 600, "submit_s": NOW_S - 900}
    held = ((4101, "n1", 0b00001111), (4102, "n1", 0b00110000), (4107, "n2", 0b00000011))
    jobs = [{"job_id": job, "user": USERS[job % 4], "gpus": mask.bit_count(), "node_list": name, **runs}
            for job, name, mask in held]  # fmt: skip
    jobs += [{"job_id": job, "user": USERS[job % 4], "gpus": 2 ** (job % 4), "submit_s": NOW_S - 60.0 * (4140 - job),
              "waiting_s": 60.0 * (4140 - job), "attained_gpu_s": 5_400.0 * (job % 5), "reason": "Resources"}
             for job in range(4110, 4140)]  # fmt: skip
    rows = [{"job_id": job, "node": name, "gpu_type": "v100", "gpus": mask.bit_count(), "gpu_mask": mask}
            for job, name, mask in held]  # fmt: skip
    nodes = [node("n1"), node("n2"), node("n3", state="IDLE+DRAIN", reason="fan")]
    shown = site(nodes, jobs, allocations=rows, now_s=NOW_S)
    shown = replace(shown, site=replace(shown.site, cluster="gpu1"))
    plan = Planner.from_config(
        parse_config({"scope": {"partitions": ["*"]}, "policy": {"name": "discretized-las"}})
    ).plan(shown)
    return Frame(shown, plan, "nice", "dry-run", "discretized-las")


async def drawn(keys: Sequence[str], whole: Callable[[str], bool] = lambda shown: True) -> str:
    """The screen of 80 columns after these keys, as SVG that asks the network for nothing.

    whole: whether a picture is painted whole, which takes a while on a busy machine; after a minute as it is.
    """
    app = TopApp(busy, 3_600.0)
    async with app.run_test(size=(80, 24)) as pilot:
        while app.frame is None:
            await pilot.pause(0.02)
        await pilot.press(*keys)
        end_s, shown, before = time.monotonic() + 60, app.export_screenshot(title="slurmsched top"), ""
        while shown != before or (not whole(shown) and time.monotonic() < end_s):
            await pilot.pause(0.2)
            shown, before = app.export_screenshot(title="slurmsched top"), shown
        return re.sub(r"@font-face \{.*?\}\s*", "", shown, flags=re.DOTALL)


if __name__ == "__main__":
    for path, keys in zip(sys.argv[1:], ((), ("f5",)), strict=False):
        Path(path).write_text(asyncio.run(drawn(keys)), encoding="utf-8")
