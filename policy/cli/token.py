"""`policy token`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

_TOKENS = click.option(
    "--tokens",
    cls=options.Filled,
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="POLICY_TOKENS",
    show_envvar=True,
    required=True,
    help="The file that `policy serve --tokens` names.",
)
_ROLES = ("viewer", "operator", "extender", "admin")


@click.group("token")
def group() -> None:
    """Tokens: who may call the service, and what they may do.

    The file keeps a hash of each token; the token itself is shown once, when it is made. A running
    service takes a changed file over within a second.

    \b
    Example:
      policy token create alice --role admin --tokens tokens.json
      policy token list --tokens tokens.json
    """


@group.command("create")
@click.argument("name", metavar="NAME")
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What it may do.")
@click.option(
    "--namespaces",
    cls=options.Filled,
    metavar="NAME,...",
    help="With role viewer: see nothing of other namespaces.",
)
@_TOKENS
def create(name: str, role: str, namespaces: str | None, tokens: Path) -> int:
    """Make a token and print it; it cannot be shown again.

    A viewer reads. An operator also activates rule sets and rolls back. An extender calls the
    extender and nothing else. An admin may do everything.

    \b
    Example:
      policy token create scheduler --role extender --tokens tokens.json
      policy token create shop-team --role viewer --namespaces shop,shop-test --tokens tokens.json
    """
    from policy.server.security.tokens import Role, TokenError, TokenFile

    only = None if namespaces is None else [name.strip() for name in namespaces.split(",")]
    if only is not None and "" in only:
        raise options.Misused(
            f"`--namespaces`: a name is missing beside a comma in `{namespaces}`",
            help="separate the names by one comma each",
        )
    try:
        secret = TokenFile(tokens).create(
            name, Role(role), namespaces=only, now_ms=session.clock_ms()
        )
    except TokenError as exc:
        output.say(exc.message, help=exc.help)
        return Exit.ERROR
    output.say(f"token `{name}` of role `{role}`; keep it now, it is not shown again")
    output.data(secret + "\n")
    return Exit.OK


@group.command("list")
@_TOKENS
@options.token_uses_option
@options.output_option
def list_(tokens: Path, token_uses: Path | None, form: str) -> int:
    """List the tokens, also the revoked ones, with their last use.

    The namespaces of a token that sees all of them are `*`, and null in JSON.

    \b
    Example:
      policy token create alice --role admin --tokens tokens.json
      policy token list --tokens tokens.json
    """
    from policy.server.security.tokens import TokenError, TokenFile

    file = TokenFile(tokens, uses=token_uses)
    try:
        found, used = file.tokens(), file.last_used()
    except TokenError as exc:
        output.say(exc.message, help=exc.help)
        return Exit.ERROR
    every = "*" if form in ("table", "csv") else None
    rows: list[dict[str, Any]] = [
        {
            "name": token.name,
            "role": token.role.value,
            "namespaces": every if token.namespaces is None else token.namespaces,
            "created": session.instant(token.created_ms),
            "last_used": session.instant(used.get(token.sha256)),
            "revoked": session.instant(token.revoked_ms),
        }
        for token in found
    ]
    columns = ("name", "role", "namespaces", "created", "last_used", "revoked")
    output.rows(rows, form, columns=columns)
    return Exit.OK


@group.command("revoke")
@click.argument("name", metavar="NAME")
@_TOKENS
def revoke(name: str, tokens: Path) -> int:
    """Make a token, and the sessions that began with it, invalid.

    \b
    Example:
      policy token create bob --role operator --tokens tokens.json
      policy token revoke bob --tokens tokens.json
    """
    from policy.server.security.tokens import TokenError, TokenFile

    try:
        TokenFile(tokens).revoke(name, now_ms=session.clock_ms())
    except TokenError as exc:
        output.say(exc.message, help=exc.help)
        return Exit.ERROR
    output.say(f"token `{name}` is revoked")
    return Exit.OK
