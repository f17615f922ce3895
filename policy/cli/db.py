"""`policy db`"""

from __future__ import annotations

import click

from policy.cli import options, output
from policy.cli.exits import Exit


@click.group("db")
def group() -> None:
    """Look after the database's schema.

    A new database is filled on first use; an existing one of an older version is changed by
    `policy db upgrade` only.

    \b
    Example:
      policy db current
    """


@group.command("upgrade")
@options.db_option
def upgrade(db: str) -> int:
    """Bring a database to the newest schema, in one transaction.

    \b
    Example:
      policy db upgrade --db policy.db
    """
    from policy.store import upgrade as run

    output.say(f"schema {run(db).revision}")
    return Exit.OK


@group.command("downgrade")
@click.argument("revision")
@options.db_option
def downgrade(revision: str, db: str) -> int:
    """Bring a database to an older schema; what that one cannot hold is lost.

    REVISION is a schema revision as `policy db current` names it, or `base` for an empty database.

    \b
    Example:
      policy db upgrade --db old.db
      policy db downgrade 0001 --db old.db
    """
    from policy.store import downgrade as run

    output.say(f"schema {run(db, revision).revision or 'base'}")
    return Exit.OK


@group.command("current")
@options.db_option
@options.output_option
def current(db: str, form: str) -> int:
    """Print which schema a database has, and which one this version works with.

    \b
    Example:
      policy db current --output json
    """
    from policy.store import current as run

    schema = run(db)
    row = {
        "revision": schema.revision,
        "newest": schema.newest,
        "up_to_date": schema.up_to_date,
    }
    if form in ("json", "yaml"):
        output.document(row, form)
    else:
        output.rows([row], form, columns=tuple(row))
    return Exit.OK


@group.command("check")
@options.db_option
def check(db: str) -> int:
    """Check that a database can be used as it is; the exit status is 1 where it cannot.

    \b
    Example:
      policy db check
    """
    from policy.store import Store

    with Store.open(db, read_only=True, create=False) as store:
        output.say(f"`{store.location}` is up to date")
    return Exit.OK
