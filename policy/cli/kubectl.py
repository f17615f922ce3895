"""`kubectl preemption`: the same commands, with the kubeconfig's context and namespace.

Installed as `kubectl-preemption`, which kubectl finds on the PATH.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from policy.cli import output
from policy.cli.exits import Exit

HELP: Final = """\
Say which pods were preempted in this cluster, by whom, and why.

Usage:
  kubectl preemption list                     preemptions by the cluster's own scheduler
  kubectl preemption who  [NAMESPACE/]POD     who evicted this pod
  kubectl preemption why  [NAMESPACE/]POD     its newest preemption in full, either way
  kubectl preemption why  NUMBER              one by its number
  kubectl preemption import                   list this cluster once
  kubectl preemption follow                   follow this cluster

All of them take `--context NAME`, `--kubeconfig FILE`, `-n NAMESPACE`, `--db DATABASE` and the
options of the `policy` command behind them (observed, who, explain, import, follow).
"""

_COMMANDS: Final = ("list", "who", "why", "import", "follow")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return the exit status."""
    from policy.cli import app

    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        output.block(HELP.rstrip())
        return Exit.OK
    command, rest = given[0], given[1:]
    if command not in _COMMANDS:
        output.say(f"there is no `kubectl preemption {command}`", help=f"there are {_listed()}")
        return Exit.USAGE
    context, rest = _taken(rest, "--context")
    kubeconfig, rest = _taken(rest, "--kubeconfig")
    namespace, rest = _taken(rest, "--namespace", "-n")
    if command in ("import", "follow"):
        place = ["--context", context] if context else []
        place += ["--kubeconfig", kubeconfig] if kubeconfig else []
        known = _context(kubeconfig, context)[0]
        if command == "import":
            place += ["--context", known] if not context and known else []
            place += ["--cluster", known] if known else []
        return app.run([command, *place, *rest])
    cluster, default = _context(kubeconfig, context)
    where = ["--cluster", cluster] if cluster else []
    if command == "list":
        return app.run(["observed", *where, *rest])
    if not rest or rest[0].startswith("-"):
        output.say(f"`kubectl preemption {command}` needs a pod", help="for example shop/web-1")
        return Exit.USAGE
    subject, rest = rest[0], rest[1:]
    if command == "why" and subject.isdigit():
        return app.run(["explain", f"observed:{subject}", *rest])
    pod = subject if "/" in subject else f"{namespace or default or 'default'}/{subject}"
    return _about(command, pod, where, rest)


def _about(command: str, pod: str, where: list[str], rest: list[str]) -> int:
    """The preemptions that a pod took part in, or the newest of them in full."""
    from policy.cli import app

    if command == "who":
        return app.run(["who", pod, *where, *rest])
    db, others = _taken(rest, "--db")
    base = ["--db", db] if db else []
    return app.run(["explain", f"observed:{pod}", *where, *base, *others])


def _listed() -> str:
    return ", ".join(f"`{name}`" for name in _COMMANDS)


def _taken(arguments: list[str], *names: str) -> tuple[str | None, list[str]]:
    """The value of an option, and the arguments without it."""
    rest: list[str] = []
    value: str | None = None
    waiting = iter(arguments)
    for argument in waiting:
        name, equals, own = argument.partition("=")
        if name in names:
            value = own if equals else next(waiting, "")
        else:
            rest.append(argument)
    return value, rest


def _context(named: str | None, context: str | None) -> tuple[str, str]:
    """Name of the context that is meant, and its namespace; "" for what is not said."""
    from policy.live import kubeconfig

    try:
        config = kubeconfig.read(named)
        current = kubeconfig.current(config, context)
        namespace = kubeconfig.entry(config, "contexts", current).get("namespace")
    except (kubeconfig.KubeconfigError, OSError):
        # The database can be read without the cluster.
        return context or "", ""
    return current, str(namespace or "")
