"""Root folders with a Slurm in them, built once and cached: a system layer and a venv layer per suite."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import host
from host import LabError

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
TEMPLATES = HERE / "templates"
SUITES = ("forky", "trixie")
WITH_PYSLURM = ("forky",)  # the releases of pyslurm do not build against trixie's 24.11
SLURM = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "slurmrestd", "slurm-wlm-basic-plugins")
PACKAGES = (
    *(*SLURM, "slurm-wlm-mysql-plugin", "munge", "mariadb-server", "postgresql"),
    *("libslurm-dev", "gcc", "g++", "python3-dev", "iproute2", "procps", "tini"),
)
# Two addresses: getaddrinfo's AI_ADDRCONFIG, which Slurm's daemons listen by, overlooks 127.0.0.1.
LOOPBACK = "ip link set lo up && ip address add 127.0.0.2/32 dev lo && "
TIDY = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root")
BARE = ("make", "git", "python3", "python3-venv", "ca-certificates")  # what the README asks for, and no more
EXTRAS = ("test", "mysql", "postgres", "sweep")
KEPT = 2  # layers of one kind and suite: two branches with other dependencies do not evict each other


@dataclass(frozen=True, slots=True)
class Image:
    """layers: root folders, uppermost first. versions: suite, slurm, python, pyslurm (or None)."""

    layers: tuple[Path, ...]
    versions: dict[str, str | None]


def cache() -> Path:
    """Where images, downloads and instances lie."""
    chosen = os.environ.get("SLURMSCHED_LAB_CACHE") or "~/.cache/slurmsched-lab"
    return Path(chosen).expanduser().absolute()


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock `name` of the cache; waits for whoever holds it."""
    with (folder("locks") / name).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another lab.py that works on {name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def image(suite: str) -> Image:
    """The image of a suite, built if the cache has none for these packages and dependencies."""
    if suite not in SUITES:
        raise LabError(f"no suite {suite!r}: take one of {', '.join(SUITES)}")
    host.need_tools()
    with locked(f"image-{suite}"):
        system_key = digest(suite, *PACKAGES, *texts("enter.sh", "system.sh", "provision.sh", "slurmdbd.conf"))
        system = layer(f"system-{suite}", system_key, lambda new: build_system(suite, new))
        wanted = requirements()
        scripts = ("venv.sh", "pyslurm.sh") if suite in WITH_PYSLURM else ("venv.sh",)
        venv_key = digest(system.name, *wanted, locked_versions(), *texts(*scripts))
        venv = layer(f"venv-{suite}", venv_key, lambda new: build_venv(suite, system, wanted, new))
        versions = json.loads((system / "versions.json").read_text())
        versions |= json.loads((venv / "versions.json").read_text())
        return Image((venv / "root", system / "root"), {"suite": suite, **versions})


def layer(kind: str, key: str, build) -> Path:
    """The cached folder KIND-KEY; made by `build` in a temporary folder and renamed when it is whole."""
    images = cache() / "images"
    images.mkdir(parents=True, exist_ok=True)
    path = images / f"{kind}-{key}"
    if not path.exists():
        for leftover in images.glob(f".new-{kind}-*"):  # of a build that was killed; we hold the lock
            shutil.rmtree(leftover)
        new = Path(tempfile.mkdtemp(prefix=f".new-{kind}-", dir=images))
        new.chmod(0o755)
        say(f"building {path.name}")
        start_s = time.monotonic()
        try:
            build(new)
            new.rename(path)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        say(f"built {path.name} in {time.monotonic() - start_s:.0f} s")
    os.utime(path)
    drop_old(images, kind)
    return path


def drop_old(images: Path, kind: str) -> None:
    """Delete the least recently used layers of this kind that no instance stands on."""
    used = " ".join(path.read_text() for path in cache().glob("instances/*/instance.json"))
    newest_first = sorted(images.glob(f"{kind}-*"), key=lambda path: -path.stat().st_mtime)
    for path in newest_first[KEPT:]:
        if path.name not in used:
            shutil.rmtree(path)


def debian(suite: str, new: Path, packages: tuple[str, ...]) -> None:
    """Debian's smallest system with these packages, in new/root."""
    root = new / "root"
    debs = folder("debs", suite)
    scripts = Path("/usr/share/debootstrap/scripts")
    script = [] if (scripts / suite).exists() else [str(scripts / "sid")]
    include = f"--include={','.join(packages)}"
    mirror = host.mirror()
    command = ["debootstrap", "--variant=minbase", include, f"--cache-dir={debs}", suite, str(root), mirror, *script]
    # In namespaces of its own, so that its mounts go with it however it ends.
    if quietly(["unshare", "--mount", "--pid", "--fork", "--kill-child", *command], new / "debootstrap.log"):
        raise LabError(f"debootstrap of {suite} failed: does {mirror} have that suite?")
    if host.CA_BUNDLE.exists():
        shutil.copy(host.CA_BUNDLE, root / "etc/ssl/certs/ca-certificates.crt")


def build_system(suite: str, new: Path) -> None:
    """Debian, Slurm, databases and accounts, in new/root."""
    root = new / "root"
    debs = folder("debs", suite)
    debian(suite, new, ("python3", "python3-venv", "ca-certificates"))
    (root / "etc/apt/apt.conf.d/99lab").write_text(host.apt_settings())
    binds = [f"{debs}:/var/cache/apt/archives:rw"]
    in_root(new, "system.sh", binds=binds, env={"PACKAGES": " ".join(PACKAGES)})

    shutil.copy(TEMPLATES / "labctl", root / "usr/local/bin/labctl")
    (root / "usr/local/bin/labctl").chmod(0o755)
    dbd = root / "etc/slurm/slurmdbd.conf"
    shutil.copy(TEMPLATES / "slurmdbd.conf", dbd)
    dbd.chmod(0o600)
    slurm = (root / "var/lib/slurm/slurmctld").stat()
    os.chown(dbd, slurm.st_uid, slurm.st_gid)
    in_root(new, "provision.sh", net=False)
    versions = {
        "slurm": ask(new, "slurmctld -V").removeprefix("slurm-wlm").removeprefix("slurm").strip(),
        "python": ask(new, "python3 -V").removeprefix("Python").strip(),
    }
    (new / "versions.json").write_text(json.dumps(versions))


def bare(suite: str) -> Path:
    """The cached layer with a Debian that has BARE and what debootstrap's smallest variant has: root/."""
    host.need_tools()
    with locked(f"image-{suite}"):
        return layer(f"bare-{suite}", digest(suite, *BARE), lambda new: debian(suite, new, BARE))


def run_bare(suite: str, command: list[str]) -> int:
    """Run a command in a copy of this checkout on a bare Debian, as root, without /sys; its exit status."""
    system, env = bare(suite), host.passed_environment()
    env |= {"PIP_CACHE_DIR": "/var/cache/pip", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    binds = [f"{path}:{path}:ro" for path in host.named_paths(env)] + [f"{folder('pip')}:/var/cache/pip:rw"]
    with tempfile.TemporaryDirectory(prefix="bare-", dir=cache()) as scratch:
        merged, work, files = (Path(scratch, name) for name in ("merged", "work", "src"))
        for made in (merged, work, files):
            made.mkdir()
        copy_checkout(files)
        argv = ["sh", "-c", 'umount /sys && cd /src && exec "$@"', "bare", *command]
        argv = enter(merged, layers=[system / "root"], work=work, binds=[*binds, f"{files}:/src:rw"], command=argv)
        settings = (f"{key}={text}" for key, text in env.items())
        argv = ["setpriv", "--pdeathsig=KILL", "env", "-i", *TIDY, *settings, *argv]
        return subprocess.run(argv, check=False, stdin=subprocess.DEVNULL).returncode


def copy_checkout(to: Path) -> None:
    """The files of this checkout that git does not ignore, as they are now, with a repository of their own."""
    listed = subprocess.run(["git", "-C", CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            check=True, capture_output=True).stdout  # fmt: skip
    names = [name for name in listed.decode().split("\0") if name and os.path.lexists(CHECKOUT / name)]
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(CHECKOUT / name, to / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet", to], check=True)
    subprocess.run(["git", "-C", to, "add", "--all", "--force"], check=True)


def build_venv(suite: str, system: Path, wanted: list[str], new: Path) -> None:
    """The project's dependencies and pyslurm, in new/root/opt/venv."""
    venv = new / "root/opt/venv"
    venv.mkdir(parents=True)
    env = host.passed_environment()
    env |= {"PIP_CACHE_DIR": "/var/cache/pip", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    binds = [f"{path}:{path}:ro" for path in host.named_paths(env)] + [f"{folder('pip')}:/var/cache/pip:rw"]
    release = None
    if suite in WITH_PYSLURM:
        wheel = pyslurm(suite, system, new, binds, env)
        release = wheel.name.split("-")[1]
        binds.append(f"{wheel.parent}:/wheels:ro")
    binds.append(f"{venv}:/opt/venv:rw")
    wanted_env = {"REQUIREMENTS": "\n".join(wanted), "CONSTRAINTS": locked_versions()}
    in_root(new, "venv.sh", lower=system, binds=binds, env={**env, **wanted_env})
    (new / "versions.json").write_text(json.dumps({"pyslurm": release}))


def pyslurm(suite: str, system: Path, new: Path, binds: list[str], env: dict[str, str]) -> Path:
    """The cached wheel for the Slurm and Python of `system`; building it takes minutes."""
    key = digest(suite, (system / "versions.json").read_text(), *texts("pyslurm.sh"))
    wheels = folder("wheels") / f"pyslurm-{suite}-{key}"
    if not wheels.exists():
        fresh = new / "wheels"
        fresh.mkdir()
        in_root(new, "pyslurm.sh", lower=system, binds=[*binds, f"{fresh}:/wheels:rw"], env=env)
        fresh.rename(wheels)
    return next(wheels.glob("pyslurm-*.whl"))


def in_root(new: Path, script: str, *, lower: Path | None = None, binds=(), env=None, net=True) -> None:
    """Run a template as root inside new/root, or inside a throw-away copy of the layer `lower`."""
    command = ["sh", "-c", (TEMPLATES / script).read_text()]
    with tempfile.TemporaryDirectory(prefix="lab-", dir=new) as scratch:
        if lower:
            merged, work = Path(scratch, "merged"), Path(scratch, "work")
            merged.mkdir(), work.mkdir()
            argv = enter(merged, layers=[lower / "root"], work=work, binds=binds, net=net, command=command)
        else:
            argv = enter(new / "root", binds=binds, net=net, command=command)
        settings = (f"{key}={text}" for key, text in (env or {}).items())
        status = quietly(["env", "-i", *TIDY, *settings, *argv], new / f"{script}.log")
    if status:
        raise LabError(f"{script} failed with status {status} while building {new.name}")


def enter(root: Path, *, command, layers=(), work: Path | str = "", binds=(), net=True) -> list[str]:
    """The command line that runs `command` as pid 1 of a machine of its own, with that root folder.

    layers, work: as in templates/enter.sh. binds: "SRC:DST:ro|rw". net: the host's network is seen.
    """
    spaces = ["--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
    if not net:
        spaces.append("--net")
        command = ["sh", "-c", LOOPBACK + 'exec "$@"', "lab", *command]
    lower = ":".join(str(path) for path in layers)
    script = [str(TEMPLATES / "enter.sh"), str(root), lower, str(work), *binds, "--", *command]
    return ["unshare", *spaces, "sh", *script]


def ask(new: Path, command: str) -> str:
    """What a command prints inside new/root."""
    return subprocess.run(["chroot", str(new / "root"), *command.split()], check=True, text=True,
                          capture_output=True).stdout.strip()  # fmt: skip


def requirements() -> list[str]:
    """The project's dependencies with the groups its live tests need, from pyproject.toml."""
    path = CHECKOUT / "pyproject.toml"
    project = tomllib.loads(path.read_text()).get("project", {}) if path.exists() else {}
    groups = project.get("optional-dependencies", {})
    extras = [line for name in EXTRAS for line in groups.get(name, [])]
    return sorted({*project.get("dependencies", []), *extras})


def locked_versions() -> str:
    """The text of packaging/constraints.txt."""
    return (CHECKOUT / "packaging" / "constraints.txt").read_text()


def quietly(argv: list[str], log: Path) -> int:
    """Exit status; the output goes to a file, of which a failure shows the end. It dies with this process."""
    with log.open("wb") as out:
        argv = ["setpriv", "--pdeathsig=KILL", *argv]
        done = subprocess.run(argv, check=False, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode:
        say("\n".join(log.read_text(errors="replace").splitlines()[-40:]))
    return done.returncode


def folder(*parts: str) -> Path:
    """A folder of the cache, made if absent."""
    path = cache().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def texts(*names: str) -> list[str]:
    """Contents of templates, for a key."""
    return [(TEMPLATES / name).read_text() for name in names]


def digest(*parts: str) -> str:
    """Twelve hex digits that tell these texts from others."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def say(text: str) -> None:
    """A line for the person who waits; stdout is left to what was asked for."""
    print(text, file=sys.stderr, flush=True)
