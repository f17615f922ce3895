"""`policy follow`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.live.alerts import Thresholds
    from policy.live.figures import Occasion
    from policy.live.following import Follower
    from policy.rules import RuleSet
    from policy.store import Store

_Function = TypeVar("_Function", bound=Callable[..., Any])


def place_options(function: _Function) -> _Function:
    """`--kubeconfig`, `--context`, `--in-cluster`"""
    kubeconfig = click.option(
        "--kubeconfig",
        cls=options.Filled,
        metavar="FILE",
        help="The kubeconfig; that of $KUBECONFIG or ~/.kube/config, where left out.",
    )
    context = click.option(
        "--context",
        cls=options.Filled,
        metavar="NAME",
        help="One of its contexts; the current one, where left out.",
    )
    in_cluster = click.option(
        "--in-cluster", is_flag=True, help="The cluster of the pod that this runs in."
    )
    return kubeconfig(context(in_cluster(function)))


@click.command("follow")
@place_options
@options.db_option
@click.option(
    "--cluster",
    cls=options.Filled,
    metavar="NAME",
    help="Under which name it is kept; that of the context, where left out.",
)
@click.option(
    "--listen",
    cls=options.Filled,
    metavar="HOST:PORT",
    help="Answer `/healthz` and `/metrics` there.",
)
@click.option(
    "--on-event",
    "target",
    cls=options.Filled,
    metavar="PROGRAM|URL",
    help="Give alerts to it as JSON: on standard input, or by POST.",
)
@click.option(
    "--hits",
    metavar="N",
    type=click.IntRange(1),
    default=3,
    help="Alert when a workload was hit so many times within `--within`.",
)
@click.option(
    "--within",
    metavar="SECONDS",
    type=click.IntRange(1),
    default=3600,
    help="The time that `--hits` looks back.",
)
@click.option(
    "--environment",
    cls=options.Filled,
    metavar="NAME",
    help="Alert of evictions that the active rules of this environment protect from; without it"
    " no alert is about rules.",
)
def command(
    kubeconfig: str | None,
    context: str | None,
    in_cluster: bool,
    db: str,
    cluster: str | None,
    listen: str | None,
    target: str | None,
    hits: int,
    within: int,
    environment: str | None,
) -> int:
    """Follow a real cluster: its state, and every preemption that its own scheduler makes.

    Lists and watches what decides about scheduling, keeps every change as a revision, and records
    each preemption with its evidence, decided again: `policy observed` lists them. It only reads;
    deploy/follow/rbac.yaml holds the rights that it needs. It ends with Ctrl-C or SIGTERM, and goes
    on where it was when it is started again. Times that it could not see are recorded as gaps. On a
    terminal a status line shows how it is doing, elsewhere there are lines of JSON. Needs the
    extra `live`: `pip install 'preemption-policy[live]'`.

    \b
    Example:
      policy follow --context prod
      policy follow --context prod --cluster production --listen 127.0.0.1:8080
    """
    from policy.extras import require

    require("live", "`policy follow` needs")
    from policy.live.alerts import Thresholds
    from policy.live.connection import Connection, place
    from policy.live.following import Follower

    options.need("--on-event", target, "hits", "within", "environment")
    address = _address(listen)
    at = place(kubeconfig=kubeconfig, context=context, in_cluster=in_cluster)
    name = cluster or at.name
    connection = Connection(at)
    with session.open_store(db, write=True, create=True) as store:
        report = _Report(name)
        rules = _active(store, environment)
        limits = Thresholds(hits=hits, seconds=within)
        with _alerting(store, name, target, rules, limits, report) as alert:

            def tell(occasion: Occasion) -> None:
                report.occasion(occasion)
                alert(occasion)

            follower = Follower(
                store,
                name,
                connection,
                actor=session.actor(),
                clock=session.clock_ms,
                tell=tell,
            )
            try:
                _run(follower, address, report, at.server)
            finally:
                connection.close()
    return Exit.OK


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise options.Misused(f"`{text}` is not HOST:PORT", help="for example 127.0.0.1:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


def _active(store: Store, environment: str | None) -> RuleSet | None:
    if environment is None:
        return None
    from policy.rules import RuleSet

    found = store.read.environment(environment).active
    if found is None:
        raise options.Misused(f"environment `{environment}` has no active rules")
    if found.batch:
        raise options.Misused(f"environment `{environment}` holds rules of batch sessions")
    return RuleSet.from_canonical(store.read.rule_set(found.rule_set_digest))


@contextmanager
def _alerting(
    store: Store,
    cluster: str,
    target: str | None,
    rules: RuleSet | None,
    thresholds: Thresholds,
    report: _Report,
) -> Iterator[Callable[[Occasion], None]]:
    if target is None:
        yield lambda _: None
        return
    from policy.live.alerts import BadTarget, Sender, alerts_of

    try:
        sender = Sender(target, report.trouble)
    except BadTarget as exc:
        raise options.Misused(f"--on-event: {exc}") from exc

    def alert(occasion: Occasion) -> None:
        for one in alerts_of(store, cluster, occasion, rules=rules, thresholds=thresholds):
            sender.send(one)

    try:
        yield alert
    finally:
        sender.close()


def _run(follower: Follower, address: tuple[str, int] | None, report: _Report, server: str) -> None:
    import signal

    from policy.live.status import StatusServer, status_line

    status, listening = None, ""
    if address is not None:
        status = StatusServer(*address, lambda: follower.figures, session.clock_ms)
        listening = f"{address[0]}:{status.port}"
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: follower.stop()) for number in signals]
    report.started(server, listening)
    try:
        with output.status_line(lambda: status_line(follower.figures, session.clock_ms())):
            follower.run()
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
        if status is not None:
            status.close()
    report.ended(status_line(follower.figures, session.clock_ms()))


class _Report:
    """What happens, as words on a terminal and as JSON elsewhere; on standard error."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def started(self, server: str, listening: str) -> None:
        text = f"following {server} as cluster {self._cluster}"
        if listening:
            text += f"; `/healthz` and `/metrics` on {listening}"
        self._say("following", text, server=server, listening=listening)

    def ended(self, line: str) -> None:
        self._say("ended", f"ended: {line}", status=line)

    def trouble(self, message: str) -> None:
        self._say("trouble", message, message=message)

    def occasion(self, occasion: Occasion) -> None:
        for row in occasion.observations:
            victims = [victim.victim for victim in row.victims]
            self._say(
                "observed",
                f"{session.instant(row.now_ms)} {row.preemptor or 'an unknown pod'} took {row.node}"
                f" from {', '.join(victims)}: {row.confidence}, {row.verdict}"
                + (f" ({row.reason})" if row.reason else ""),
                observation=row.id,
                preemptor=row.preemptor,
                node=row.node,
                victims=victims,
                confidence=row.confidence,
                verdict=row.verdict,
                reason=row.reason,
            )
        if occasion.gap is not None:
            gap = occasion.gap
            text = f"gap: {gap.kind} was not seen until now: {gap.reason}"
            self._say("gap", text, kind=gap.kind, reason=gap.reason)
        if occasion.trouble:
            self.trouble(occasion.trouble)
        if occasion.recovered:
            kind = occasion.recovered
            self._say("recovered", f"{kind}: it can be read again", kind=kind)

    def _say(self, event: str, text: str, **values: Any) -> None:
        if output.on_terminal():
            output.say(text)
            return
        import json

        line = {"at": session.instant(session.clock_ms()), "event": event, "cluster": self._cluster}
        output.say(json.dumps({**line, **values}))
