#!/usr/bin/env python3
"""A real Slurm with fake GPUs on one machine: one command up, one down. See README.md beside this file."""

import argparse
import os
import signal
import sys
import time

import cluster
import host
import image
from host import LabError


def main(argv: list[str]) -> int:
    """Run one command; its exit status."""
    cut = argv.index("--") if "--" in argv else len(argv)
    args = parser().parse_args(argv[:cut])
    args.command = argv[cut + 1 :]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a stopped `up` clears up after itself
    try:
        host.need_tools()
        return args.do(args) or 0
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="lab.py", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(do, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(do.__name__.removeprefix("do_"), help=text, description=text)
        sub.set_defaults(do=do)
        return sub

    build = add(do_image, "build the cached root image of a suite")
    start = add(do_up, "start a lab, wait until its nodes are idle, print the versions")
    for sub in (build, start):
        sub.add_argument("suite", choices=image.SUITES)
    start.add_argument("--name", help="default: the suite")
    start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of slurm.conf")
    small = add(do_bare, "run a command in a copy of the checkout on a bare Debian: bare SUITE -- COMMAND...")
    small.add_argument("suite", choices=image.SUITES)
    run = add(do_exec, "run a command in a lab: exec [--name NAME] [--user USER] -- COMMAND...")
    shell = add(do_shell, "a shell in a lab")
    for sub in (run, shell):
        sub.add_argument("--name", help="default: the one that is up")
        sub.add_argument("--user", default="root", help="root (in /src) or one of the lab's users (in their home)")
    add(do_status, "list the labs")
    stop = add(do_down, "end a lab; nothing is left behind")
    stop.add_argument("--name", help="default: the one that is up")
    stop.add_argument("--all", action="store_true", help="end every lab, leftovers of killed ones too")
    return top


def do_image(args: argparse.Namespace) -> None:
    print(told(image.image(args.suite).versions))


def do_up(args: argparse.Namespace) -> None:
    start_s = time.monotonic()
    lab = cluster.up(args.suite, args.name or args.suite, args.set)
    print(f"{lab.name}: {told(lab.facts['versions'])}; nodes idle after {time.monotonic() - start_s:.1f} s")


def do_exec(args: argparse.Namespace) -> None:
    lab = cluster.pick(args.name)
    if not args.command:
        raise LabError("exec what? lab.py exec [--name NAME] [--user USER] -- COMMAND...")
    cluster.link_checkout(lab)
    argv = lab.argv(args.command, args.user)
    os.execvp(argv[0], argv)


def do_bare(args: argparse.Namespace) -> int:
    if not args.command:
        raise LabError("run what? lab.py bare SUITE -- COMMAND...")
    return image.run_bare(args.suite, args.command)


def do_shell(args: argparse.Namespace) -> None:
    args.command = ["bash"]
    do_exec(args)


def do_status(args: argparse.Namespace) -> None:
    for lab in cluster.instances():
        facts = lab.facts
        state = f"up, pid {facts['pid']}" if lab.alive else "dead"
        print(f"{lab.name}: {told(facts['versions'])}; {state}; checkout {facts['checkout']}")


def do_down(args: argparse.Namespace) -> None:
    dead = [lab for lab in cluster.instances() if lab.name == args.name and not lab.alive]
    for lab in cluster.instances() if args.all else dead or [cluster.pick(args.name)]:
        cluster.down(lab)
        print(f"{lab.name}: down")


def told(versions: dict) -> str:
    """Versions in words."""
    if not versions:
        return "versions unknown"
    return (
        f"Debian {versions['suite']}, Slurm {versions['slurm']}, "
        f"pyslurm {versions['pyslurm'] or 'none'}, Python {versions['python']}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
