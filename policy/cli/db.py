"""`policy db`"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import PrunedCluster


@click.group("db")
def group() -> None:
    """Look after the database: its schema, and how much of the past it keeps.

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

    Decisions of a Postgres server that were in no partitions then get them, month by month, each in
    a transaction of its own: others may use the database meanwhile, and where it is interrupted,
    `policy db partition` goes on. Prints each month that is done.

    \b
    Example:
      policy db upgrade --db policy.db
    """
    from policy.store import upgrade as run

    schema = run(db, moved=lambda one: output.say(f"partition {one.name}"))
    output.say(f"schema {schema.revision}")
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

    Compares schema revision, tables, columns, indexes and the names of the views with what this
    version works with, and has SQLite check its file. What the rows say is `policy audit verify`.

    \b
    Example:
      policy db check
    """
    from policy.store import check as run

    found = run(db)
    for problem in found.problems:
        output.say(problem)
    if found.ok:
        output.say(f"schema {found.schema.revision}, nothing is wrong")
        return Exit.OK
    if not found.schema.up_to_date:
        output.say("  help: run `policy db upgrade`")
    return Exit.ERROR


@group.command("prune")
@click.option(
    "--older-than",
    "older_than",
    metavar="TIME",
    required=True,
    callback=options.instant,
    help="Take out what was recorded before (`90d`, `2w`, or a time).",
)
@options.any_cluster_option
@click.option("--yes", is_flag=True, help="Take it out; without it, only say what would go.")
@options.db_option
@options.output_option
def prune(older_than: datetime, cluster: str | None, yes: bool, db: str, form: str) -> int:
    """Take whole old stretches out of the record; what stays can still be verified.

    Says what can no longer be shown or replayed, and does nothing more without --yes. Keep the head
    that it prints then: `policy audit verify --head HASH` proves that what stays is as it was.
    Heads that were kept before prove nothing about what went, and are findings from then on.

    \b
    Example:
      policy db prune --older-than 90d
      policy db prune --older-than 90d --yes
    """
    before = options.millis(older_than)
    assert before is not None  # the option is required
    with session.open_store(db, write=yes) as store:
        if yes:
            plan = store.ledger.prune(
                before, actor=session.actor(), at_ms=session.clock_ms(), cluster=cluster
            )
        else:
            plan = store.ledger.plan_prune(before, cluster=cluster)
    found = [_pruned(cluster) for cluster in plan.clusters]
    output.rows(found, form, columns=tuple(found[0]) if found else ("cluster",))
    if not found:
        output.say("nothing is that old")
    elif yes:
        for done in plan.clusters:
            output.say(f"taken out; keep the head of cluster {done.cluster}: {done.head}")
    else:
        output.say("would be taken out and could no longer be shown or replayed; --yes does it")
    left = sum(cluster.hypothetical_left for cluster in plan.clusters)
    if left:
        stay = output.number(left, "hypothetical decision")
        output.say(f"without the states that they were made on stay {stay}")
    return Exit.OK


@group.command("recount")
@options.db_option
def recount(db: str) -> int:
    """Compute the totals of the record again from its rows.

    Totals are kept as decisions are recorded, and saved queries read them. Use it where
    `policy audit verify` finds one that differs from the rows. Writers wait meanwhile; a million
    decisions take about a minute.

    \b
    Example:
      policy db recount
    """
    with session.open_store(db, write=True) as store:
        store.ledger.recount()
    output.say("the totals are those of the rows")
    return Exit.OK


@group.command("partition")
@options.db_option
@options.output_option
def partition(db: str, form: str) -> int:
    """Give every past month of decisions a partition of its own, on a Postgres server.

    Decisions and what belongs to them are kept in partitions by the month (UTC) in which they were
    recorded; new ones go into the partition `open`. Run it at the beginning of a month, and as
    often as you like. It may run beside whoever writes and reads: they wait while a month changes
    its table, seconds where it was run in time. Each month is a transaction of its own. `policy db
    prune` then drops whole partitions. Prints those that were made.

    \b
    Example:
      policy db partition
    """
    from policy.store.partitions import complete_months

    found = [
        {
            "partition": one.name,
            "first_decision": one.first_id,
            "last_decision": None if one.behind_id is None else one.behind_id - 1,
        }
        for one in complete_months(db, now_ms=session.clock_ms())
    ]
    output.rows(found, form, columns=("partition", "first_decision", "last_decision"))
    if not found:
        output.say("every month that is over has a partition")
    return Exit.OK


@group.group("reader")
def reader() -> None:
    """Roles of a Postgres server that can read the record, and do nothing else.

    They are for `policy sql`, for dashboards, and for whoever looks at the record with SQL.

    \b
    Example:
      policy db reader --help
    """


@reader.command("create")
@click.argument("name", default="policy_reader")
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from standard input, up to the end of its first line.",
)
@click.option("--views", is_flag=True, help="Let it read the views alone, and no table.")
@options.db_option
def create_reader(name: str, password_stdin: bool, views: bool, db: str) -> int:
    """Make a role that can log in, read the tables and views, and do nothing else.

    Prints the URL of its connection, for --reader-url or POLICY_READER_DB. The password is
    generated and stands in that URL only: it is shown once and kept nowhere else. With
    --password-stdin it is yours, and the URL is printed without it. The connection of --db must
    be that of the tables' owner, with the right to make roles.

    \b
    Example:
      policy db reader create dashboards
    """
    from policy.store.readers import create_reader as create

    password = sys.stdin.readline().rstrip("\r\n") if password_stdin else None
    made = create(db, name, password=password, views_only=views)
    output.data(f"{made.url}\n")
    what = "views" if views else "tables and views"
    output.say(f"role `{made.name}` can read {made.relations} {what}")
    if password is None:
        output.say(
            "the password in the URL is shown this once; keep the URL where secrets are kept"
        )
    output.say("  help: `export POLICY_READER_DB=URL` has `policy sql` use it")
    if made.open_schema:
        output.say(
            f"every role of this server, this one too, may make tables in `{made.open_schema}`"
        )
        output.say(f"  help: `REVOKE CREATE ON SCHEMA {made.open_schema} FROM PUBLIC` ends that")
    return Exit.OK


@reader.command("drop")
@click.argument("name")
@options.db_option
def drop_reader(name: str, db: str) -> int:
    """Remove a role that `policy db reader create` made.

    A role that has other rights or owns something is left as it is.

    \b
    Example:
      policy db reader create visitor
      policy db reader drop visitor
    """
    from policy.store.readers import drop_reader as drop

    drop(db, name)
    output.say(f"role `{name}` is removed")
    return Exit.OK


def _pruned(cluster: PrunedCluster) -> dict[str, Any]:
    fields = {name: getattr(cluster, name) for name in cluster.__dataclass_fields__}
    for name in ("first", "last"):
        fields[f"{name}_at"] = session.instant(fields.pop(f"{name}_ms"))
    return fields
