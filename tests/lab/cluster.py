"""Running labs: one private machine each, over a cached image; ended as a whole by ending its pid 1."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from host import LabError
from image import CHECKOUT, TEMPLATES, Image, cache, enter, image, locked, say

CONFIG = ("slurm.conf", "gres.conf", "cgroup.conf")
SPACES = ("--mount", "--pid", "--net", "--uts", "--ipc")
PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_S, READY_S, COMPILE_S = 60, 120, 600
SERVICES_S = 1800  # labctl waits 180 s for each of five services, at their start and again until all are ready
BYTECODE = "/var/cache/bytecode"  # of all Python files: /src is read-only, and compiling takes a cold command long
COMPILED = f"""umask 0; mkdir -p {BYTECODE}; python -m compileall -q /src/slurmsched /src/cli /src/db
python -c 'import dask, distributed, dask_jobqueue, numba, polars, psycopg, pymysql, pyslurm, pytest, scipy.optimize'
slurmsched plan >/dev/null 2>&1 || true"""


@dataclass(frozen=True, slots=True)
class Instance:
    """A lab that was started: its folder holds instance.json, the overlay and the log of pid 1."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def facts(self) -> dict:
        """pid and birth of its pid 1 as seen from here, keeper (its parent), versions, checkout, settings."""
        try:
            return json.loads((self.folder / "instance.json").read_text())
        except FileNotFoundError:  # `up` was killed before it could say
            return {"pid": 0, "birth": "", "keeper": 0, "versions": {}, "checkout": "?"}

    @property
    def alive(self) -> bool:
        return bool(self.facts["pid"]) and birth(self.facts["pid"]) == self.facts["birth"]

    @property
    def root(self) -> Path:
        """Its root folder, from outside."""
        return Path(f"/proc/{self.facts['pid']}/root")

    def argv(self, command: list[str], user: str = "root") -> list[str]:
        """The command line that runs `command` inside, as that user with a tidy environment."""
        accounts = (line.split(":") for line in (self.root / "etc/passwd").read_text().splitlines())
        homes = {account[0]: account[5] for account in accounts}
        if user not in homes:
            raise LabError(f"no user {user!r} in lab {self.name}")
        env = {
            "HOME": homes[user],
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb"),
            "PYTHONPYCACHEPREFIX": BYTECODE,
            "PYTEST_ADDOPTS": "-o cache_dir=/var/tmp/pytest",  # /src is read-only
            "HYPOTHESIS_STORAGE_DIRECTORY": "/var/tmp/hypothesis",
            "NUMBA_CACHE_DIR": "/var/cache/slurmsched-numba",
            "SLURMSCHED_LAB": self.name,
        }
        cwd = "/src" if user == "root" else homes[user]  # a user's jobs write where they were submitted
        return [
            *("nsenter", "--target", str(self.facts["pid"]), *SPACES, "--"),
            *("env", "-i", "-C", cwd, *(f"{key}={text}" for key, text in env.items())),
            *("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"),
            *command,
        ]

    def run(self, *command: str, timeout_s: float = READY_S) -> None:
        """Run a command inside as root; LabError if it fails."""
        argv = self.argv(list(command))
        try:
            subprocess.run(argv, check=True, timeout=timeout_s, stdin=subprocess.DEVNULL, stdout=2)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            how = f"status {error.returncode}" if hasattr(error, "returncode") else f"over {timeout_s} s"
            raise LabError(f"lab {self.name}: `{' '.join(command)}` ended with {how}") from error


def instances() -> list[Instance]:
    """Every lab that has a folder, alive or not."""
    return [Instance(path) for path in sorted(cache().glob("instances/*"))]


def pick(name: str | None) -> Instance:
    """The living lab of that name; without a name the only one."""
    living = [lab for lab in instances() if lab.alive and name in (None, lab.name)]
    if len(living) == 1:
        return living[0]
    names = ", ".join(lab.name for lab in instances() if lab.alive) or "none"
    raise LabError(f"no lab {name!r} is up ({names})" if name else f"which lab? Say --name; up: {names}")


def up(suite: str, name: str, settings: list[str]) -> Instance:
    """Start a lab and wait until all its nodes are idle. settings: KEY=VALUE lines for slurm.conf."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise LabError(f"{name!r}: a lab's name is small letters, digits and dashes")
    built = image(suite)
    config = rendered(settings, built.versions["slurm"])
    with locked(f"instance-{name}"):
        lab = Instance(cache() / "instances" / name)
        if lab.alive:
            raise LabError(f"lab {name} is up already: take it, or end it with `down --name {name}`")
        remove(lab)
        lab.folder.mkdir(parents=True)
        try:
            start(lab, built)
            for file, text in config.items():
                (lab.root / "etc/slurm" / file).write_text(text)
            shutil.copy(TEMPLATES / "labctl", lab.root / "usr/local/bin/labctl")
            (lab.root / "usr/local/bin/labctl").chmod(0o755)
            link_checkout(lab)
            lab.run("sh", "-c", COMPILED, timeout_s=COMPILE_S)
            begin = "cp -a /etc/slurm /etc/slurm.pristine; labctl start all; labctl wait-ready"
            lab.run("sh", "-ec", begin, timeout_s=SERVICES_S)
        except BaseException:
            tell_why(lab)
            remove(lab)
            raise
    return lab


def start(lab: Instance, built: Image) -> None:
    """Start pid 1 in its namespaces over the image and write instance.json."""
    root, work = lab.folder / "root", lab.folder / "work"
    root.mkdir()
    work.mkdir()
    command = ["tini", "--", "sleep", "infinity"]  # tini reaps the daemons' orphans
    argv = enter(root, command=command, layers=built.layers, work=work, binds=[f"{CHECKOUT}:/src:ro"], net=False)
    with (lab.folder / "log").open("wb") as log:
        keeper = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    facts = {"keeper": keeper.pid, "versions": built.versions, "checkout": str(CHECKOUT)}
    facts["layers"] = [str(path) for path in built.layers]
    late = time.monotonic() + START_S
    children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
    while keeper.poll() is None and time.monotonic() < late:
        for pid in map(int, children.read_text().split()):
            facts |= {"pid": pid, "birth": birth(pid)}
            (lab.folder / "instance.json").write_text(json.dumps(facts))
            if Path(f"/proc/{pid}/comm").read_text().strip() == "tini":
                return
        time.sleep(0.05)
    keeper.kill()
    raise LabError(f"lab {lab.name} did not start")


def rendered(settings: list[str], slurm: str) -> dict[str, str]:
    """The configuration files by name, the settings put in place of slurm.conf lines; KEY= drops one."""
    files = {file: (TEMPLATES / file).read_text() for file in CONFIG}
    # A requeued job waits 120 s by default; Slurm 25.11 has a setting for that, before it went by the credential.
    recent = [int(number) for number in slurm.split(".")[:2]] >= [25, 11]
    requeue = ",requeue_delay=5" if recent else "\nAuthInfo=cred_expire=10"
    files["slurm.conf"] = files["slurm.conf"].replace("$REQUEUE", requeue)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not re.fullmatch(r"\w+", key):
            raise LabError(f"--set {setting}: write KEY=VALUE, a line of slurm.conf")
        kept = re.sub(rf"^{key}=.*\n", "", files["slurm.conf"], flags=re.M | re.I)
        files["slurm.conf"] = kept + (f"{key}={text}\n" if text else "")
    return files


def link_checkout(lab: Instance) -> None:
    """Give the checkout at /src the metadata of an installed package, so that its entry points are found."""
    path = Path(lab.facts["checkout"]) / "pyproject.toml"
    if not path.exists():
        return
    project = tomllib.loads(path.read_text()).get("project", {})
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    entries = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in groups.items()
    )
    name, version = project.get("name", "slurmsched"), project.get("version", "0")
    texts = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "entry_points.txt": entries}
    folder = lab.root / "opt/slurmsched" / f"{name}.dist-info"
    folder.mkdir(exist_ok=True)
    for file, text in texts.items():
        if not (folder / file).exists() or (folder / file).read_text() != text:
            (folder / f"{file}.new").write_text(text)
            (folder / f"{file}.new").rename(folder / file)


def down(lab: Instance) -> None:
    """End a lab: its processes, its mounts, its folder."""
    with locked(f"instance-{lab.name}"):
        remove(lab)


def remove(lab: Instance) -> None:
    """As `down`, by someone who holds the lock; also clears what a killed `up` left."""
    facts = lab.facts
    if lab.alive:
        os.kill(facts["pid"], signal.SIGKILL)  # the kernel ends every process of its pid namespace
        for pid in (facts["pid"], facts["keeper"]):
            late = time.monotonic() + START_S
            while Path(f"/proc/{pid}").exists() and not zombie(pid):
                if time.monotonic() > late:
                    raise LabError(f"process {pid} of lab {lab.name} does not end")
                time.sleep(0.05)
    if lab.folder.exists():
        shutil.rmtree(lab.folder)


def birth(pid: int) -> str:
    """Start time of a process in clock ticks, which tells it from a later one of the same pid; "" if none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def zombie(pid: int) -> bool:
    """Whether only its exit status is left of a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def tell_why(lab: Instance) -> None:
    """The ends of a lab's logs, before they go with it."""
    for path in [lab.folder / "log", *log_files(lab)]:
        if path.exists() and (lines := path.read_text(errors="replace").splitlines()[-15:]):
            say("\n".join([f"== {path.name}", *lines]))


def log_files(lab: Instance) -> Iterator[Path]:
    if lab.alive:
        yield from (lab.root / "var/log/slurm").glob("*.log")
        yield lab.root / "var/log/mariadb.log"
