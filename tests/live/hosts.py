"""Two hosts with slurmsched beside one Slurm, and a network between them and the database that can be cut."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from tests.live.lab import PYTHON, Installed, run

SLURM = (6817, 6819)  # ports of slurmctld and slurmdbd
HERE, THERE = "10.77.0.1", "10.77.0.2"  # the lab's end of the cable, and the host's


@dataclass
class Host(Installed):
    """An installation that shares a Slurm and a database with others. enter: what puts a command on its network."""

    enter: tuple[str, ...] = ()
    daemon: subprocess.Popen[bytes] | None = None
    name: str = ""

    @property
    def log(self) -> Path:
        return self.folder / "daemon.log"

    def run(self) -> None:
        """Start its daemon, which writes."""
        self.daemon = self.begin("daemon", "--apply", log=self.log.name, enter=self.enter)

    def signal(self, number: int) -> None:
        """To the daemon and whatever it has started."""
        assert self.daemon is not None
        os.killpg(self.daemon.pid, number)

    def end(self) -> None:
        """As by kill -9; nothing happens to one that is not there."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.signal(signal.SIGKILL)
            self.daemon.wait()

    def told(self, event: str) -> list[dict]:
        """What its log says of an event."""
        lines = self.log.read_bytes().splitlines() if self.log.exists() else []
        parsed = [orjson.loads(line) for line in lines if line.startswith(b"{")]
        return [line for line in parsed if line["event"] == event]

    def sent_s(self) -> list[float]:
        """When it meant to write something, by its own journal [Unix s]."""
        lines = self.journal.read_bytes().splitlines() if self.journal.exists() else []
        return [line["time_s"] for line in map(orjson.loads, lines) if line["event"] == "override" and "old" in line]


@contextmanager
def hosts(url: str, lease_s: float, first: tuple[str, ...] = (), first_url: str = "") -> Iterator[tuple[Host, Host]]:
    """Hosts a and b. first: what puts a command on the network of a, where the database is at first_url."""
    made = []
    for name, enter, own in (("a", first, first_url or url), ("b", (), url)):
        folder = Path(f"/var/lib/slurmsched-{name}")
        shutil.rmtree(folder, ignore_errors=True)
        host = Host(folder, enter=enter, name=name)
        host.configure(ledger__url=f'"{own}"', leader__enabled="true", leader__lease_s=str(lease_s),
                       leader__name=f'"{name}"', cycle__interval_s="1.0", log__format='"json"')  # fmt: skip
        made.append(host)
    try:
        yield made[0], made[1]
    finally:
        for host in made:
            host.end()
            shutil.rmtree(host.folder, ignore_errors=True)


@dataclass
class Cable:
    """Between the lab and a network namespace. enter: what puts a command on that network."""

    enter: tuple[str, ...] = field(default=())

    def cut(self) -> None:
        """From now on packets are lost in both directions, without a word to anybody."""
        run("ip", "link", "set", "cable0", "down")

    def mend(self) -> None:
        run("ip", "link", "set", "cable0", "up")


@contextmanager
def cabled(port: int) -> Iterator[Cable]:
    """A network namespace that reaches this port of the lab by a cable, and Slurm whatever becomes of the cable."""
    with ExitStack() as stack:
        keeper = stack.enter_context(_going(["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"]))
        enter = ("nsenter", "--target", str(keeper.pid), "--net")
        run("ip", "link", "add", "cable0", "type", "veth", "peer", "name", "cable1", "netns", str(keeper.pid))
        stack.callback(run, "ip", "link", "del", "cable0", check=False)
        _up((), "cable0", HERE)
        _up(enter, "cable1", THERE)
        run(*enter, "sh", "-c", "ip link set lo up && ip address add 127.0.0.2/32 dev lo")
        sockets = {number: f"/tmp/relay-{number}" for number in SLURM}
        here = [f"{HERE}:{port}", f"127.0.0.1:{port}"]
        there: list[str] = []
        for number, path in sockets.items():
            here += [path, f"127.0.0.1:{number}"]
            there += [f"127.0.0.1:{number}", path]
        stack.enter_context(_going([PYTHON, "-m", "tests.live.relay", *here]))
        stack.enter_context(_going([*enter, PYTHON, "-m", "tests.live.relay", *there]))
        for path in sockets.values():
            Path(path).chmod(0o777)
        yield Cable(enter)


def _up(enter: tuple[str, ...], link: str, address: str) -> None:
    run(*enter, "sh", "-c", f"ip address add {address}/24 dev {link} && ip link set {link} up")


@contextmanager
def _going(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready; it ends with the body."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd="/src", start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", argv
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
