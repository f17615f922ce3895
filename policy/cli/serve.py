"""`policy serve`"""

from __future__ import annotations

from pathlib import Path

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit
from policy.cli.follow import place_options

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("serve")
@options.db_option
@click.option(
    "--environment",
    cls=options.Filled,
    metavar="NAME",
    envvar="POLICY_ENV",
    default="",
    show_default=False,
    show_envvar=True,
    shell_complete=options.proposing("environments"),
    help="Whose active rules answer where the path names no environment; without it such a call is"
    " an error.",
)
@click.option(
    "--reader-url",
    "reader",
    cls=options.Filled,
    metavar="URL",
    envvar="POLICY_READER_DB",
    default="",
    show_default=False,
    show_envvar=True,
    help="Run SQL of users over this connection, that of a role which `policy db reader create`"
    " made. Postgres needs it where --db may do more than read.",
)
@click.option(
    "--host",
    cls=options.Filled,
    metavar="ADDRESS",
    default="127.0.0.1",
    help="Where to listen; without --tokens the loopback address only.",
)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8787,
    help="0 picks a free one and prints it.",
)
@click.option("--tls-cert", type=_FILE, help="Certificate chain of the service (PEM).")
@click.option("--tls-key", type=_FILE, help="Its key (PEM), where it is not in --tls-cert.")
@click.option(
    "--client-ca",
    type=_FILE,
    help="Authority (PEM) whose client certificates may call the extender, beside --tokens.",
)
@click.option(
    "--tokens",
    cls=options.Filled,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="POLICY_TOKENS",
    show_envvar=True,
    help="Tokens that `policy token create` made. Without it: loopback only, and each caller is an"
    " admin.",
)
@options.token_uses_option
@click.option(
    "--extender-mode",
    "mode",
    type=click.Choice(("shadow", "enforce")),
    default="shadow",
    help="shadow: answer what was offered, and record what the rules say. enforce: answer what "
    "the rules say.",
)
@click.option(
    "--deadline",
    metavar="SECONDS",
    type=options.Seconds(min=0.05, max=60),
    default=1.0,
    help="Answer a scheduler within this time.",
)
@click.option(
    "--on-failure",
    type=click.Choice(("pass-through", "deny")),
    help="What a scheduler is answered where no decision can be recorded in time: what it "
    "offered, or no candidate. By default pass-through in shadow mode, deny in enforce mode.",
)
@click.option(
    "--spool",
    cls=options.Filled,
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("policy-spool"),
    help="Where such calls wait until the database can take them; made where it is missing.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Follow a real cluster, too, as `policy follow` does; needs the extra `live`.",
)
@place_options
@click.option(
    "--cluster",
    cls=options.Filled,
    metavar="NAME",
    help="Under which name the followed cluster is kept; that of the context, where left out.",
)
def command(
    db: str,
    environment: str,
    reader: str,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    tokens: Path | None,
    token_uses: Path | None,
    mode: str,
    deadline: float,
    on_failure: str | None,
    spool: Path,
    follow: bool,
    kubeconfig: str | None,
    context: str | None,
    in_cluster: bool,
    cluster: str | None,
) -> int:
    """Serve the extender that kube-scheduler calls, the API, and the pages.

    kube-scheduler calls `POST /extender/preempt` (or /extender/ENVIRONMENT/preempt) for every
    preemption; the environment's active rules judge what it offers, and every call is a recorded
    decision of origin `extender`. SIGTERM and SIGINT end the service after the calls that it
    holds; SIGHUP has it read tokens and certificates again, which it also does by itself when their
    files change. /healthz, /readyz and /metrics are for the platform. With --follow, the same
    process follows a real cluster: /healthz/follow says how that goes, and /metrics has its
    figures. See docs/service.md.

    \b
    Example:
      policy serve --environment prod
      policy serve --environment prod --extender-mode enforce --on-failure deny
      policy serve --follow --context prod
    """
    from policy.server.signals import early_signals

    early = click.get_current_context().with_resource(early_signals())
    from policy.extras import require
    from policy.server.config import LOOPBACK, Config, Follow, OnFailure
    from policy.store.model.decisions import CallMode

    require("server", "the service needs")
    options.need("--tls-cert", tls_cert is not None, "tls_key", "client_ca")
    # Without tokens every caller is let in: certificates are not checked either.
    options.need("--tokens", tokens is not None, "client_ca", "token_uses")
    options.need("--follow", follow, "kubeconfig", "context", "in_cluster", "cluster")
    if follow:
        require("live", "`--follow` needs")
    if tokens is None and host not in LOOPBACK:
        raise options.Misused(
            f"without `--tokens` the service listens on the loopback address only, not on `{host}`",
            help="make a token with `policy token create`, and name the file with --tokens",
        )
    from policy.audit import instants

    try:  # readers cannot mend it
        instants.required_zone()
    except instants.WrongZone as exc:
        raise options.wrong_zone(exc) from None
    from policy.server.extender import child

    # It loads what it needs while this process does, on another core.
    desks = child.start(child.DESKS) if environment else None
    from policy.server import process
    from policy.server.security.tokens import TokenError
    from policy.server.startup import StartError

    followed = None
    if follow:
        followed = Follow(
            kubeconfig=kubeconfig,
            context=context,
            in_cluster=in_cluster,
            cluster=cluster or "",
            actor=session.actor(),
        )
    config = Config(
        db=db,
        reader_db=reader,
        host=host,
        port=port,
        environment=environment,
        mode=CallMode(mode),
        on_failure=OnFailure(on_failure) if on_failure else None,
        deadline_ms=int(deadline * 1000),
        tokens=tokens,
        token_uses=token_uses,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        spool=spool,
        follow=followed,
    )
    try:
        started = process.run(config, desks, early)
    except (TokenError, StartError) as exc:
        output.say(exc.message, help=exc.help)
        return Exit.ERROR
    return Exit.OK if started else Exit.ERROR
