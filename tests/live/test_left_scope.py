"""Jobs that leave the scope while they wait: by their users, and by the configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.lab import Installed, nices, run, submit

pytestmark = pytest.mark.live


@pytest.fixture
def away() -> Iterator[str]:
    """A partition that slurmsched does not manage; its nodes are down."""
    run("scontrol", "create", "partitionname=away", "nodes=p[1-2]")
    yield "away"
    run("scancel", "-p", "away")
    run("scontrol", "delete", "partitionname=away", check=False)


@pytest.mark.parametrize("who", ["the user", "the admin"])
def test_tick__a_job_that_leaves_the_scope_gets_its_own_nice_back(site: Installed, away: str, who: str) -> None:
    """Lifted for one partition, and moved to another where it would pass everybody: it is as its user submitted it."""
    site.configure(scope__partitions=f'["phantom", "{away}"]', policy='{ name = "sjf" }')
    short = submit("alice", 1, "-p", "phantom", "--time=10", "--nice=7")
    others = [submit("bob", 1, "-p", "phantom", f"--time={limit}") for limit in (50, 40, 30)]
    if who == "the admin":
        run("scontrol", "update", f"jobid={short}", f"partition={away}")
    site.tick()
    lifted = nices()
    assert lifted[short] < 0
    if who == "the user":
        run("scontrol", "update", f"jobid={short}", f"partition={away}", user="alice")
    site.configure(scope__partitions='["phantom"]')
    assert site.tick()["written"] == 1
    assert nices() == lifted | {short: 7}
    assert site.tick()["written"] == 0
    run("scancel", *map(str, (short, *others)))
