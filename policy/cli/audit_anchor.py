"""`policy audit anchor`"""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit
from policy.text.printable import json_escaped

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from policy.store import KeptHead, LedgerHead

_POLL_SECONDS: Final = 1.0
_DEFAULT_INTERVAL_MS: Final = 60_000
_UNITS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000}


def _duration(_: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Callback: `60s`, `5m` or `1h` in milliseconds."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d{0,5})([smh])", text, re.ASCII)
    if found is None:
        raise click.BadParameter(f"`{text}` is not like `60s`, `5m` or `1h`", param=param)
    return int(found[1]) * _UNITS[found[2]]


@click.command("anchor")
@options.db_option
@click.option("--cluster", metavar="NAME", help="Only this cluster; all of them by default.")
@click.option(
    "--file",
    "file",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Append the anchors to this file, a JSON object a line, on the disk before going on.",
)
@click.option(
    "--exec",
    "command",
    metavar="COMMAND",
    help="Run this shell command for each anchor, after the file was written.",
)
@click.option(
    "--sign-key",
    "sign_key",
    metavar="FILE",
    envvar="POLICY_SIGN_KEY",
    type=click.Path(exists=True, dir_okay=False),
    help="Sign the anchors with this Ed25519 private key (PEM).",
)
@click.option(
    "--every",
    metavar="N",
    type=click.IntRange(1),
    help="Anchor a cluster only once N entries followed its last anchor (in --file, or so far).",
)
@click.option(
    "--interval",
    metavar="TIME",
    callback=_duration,
    help="With --watch: anchor what is new this long after the last anchor (`60s`, `5m`, `1h`);"
    " 60s where --every is not given either.",
)
@click.option("--watch", is_flag=True, help="Go on until interrupted.")
def anchor(
    db: str,
    cluster: str | None,
    file: str | None,
    command: str | None,
    sign_key: str | None,
    every: int | None,
    interval: int | None,
    watch: bool,
) -> int:
    """Keep the newest ledger entry of each cluster outside the database.

    An anchor is a JSON object with the cluster, the number and the hash of the entry; it is printed
    unless --file or --exec is given. The command gets it on standard input, and in
    POLICY_ANCHOR_CLUSTER, POLICY_ANCHOR_SEQUENCE, POLICY_ANCHOR_HASH and POLICY_ANCHOR_AT; what it
    prints goes to standard error, and a command that fails ends this one with status 1. Keep the
    anchors where no user who can write to the database can change them, and check them all with
    `policy audit verify --anchors FILE`. A ledger that ends before its last anchor, or with another
    entry, is reported with status 6.

    \b
    Example:
      policy audit anchor --file heads.jsonl
      policy audit anchor --exec 'cat > newest-head.json'
      openssl genpkey -algorithm ed25519 -out key.pem
      policy audit anchor --sign-key key.pem >> signed-heads.jsonl
    """
    from policy.audit import anchors

    if interval is not None and not watch:
        raise click.UsageError("`--interval` goes with `--watch`; a timer can run this once")
    if watch and every is None and interval is None:
        interval = _DEFAULT_INTERVAL_MS
    keeper = _Keeper(
        file=file,
        command=command,
        key=None if sign_key is None else anchors.load_private_key(sign_key),
        every=every,
        interval_ms=interval,
        last={} if file is None else anchors.newest(file),
    )
    with session.open_store(db) as store:
        while True:
            heads = store.ledger.heads() if cluster is None else [store.ledger.head(cluster)]
            for head in heads:
                if not keeper.take(head, session.clock_ms()):
                    return Exit.LEDGER
            if not watch:
                return Exit.OK
            time.sleep(_POLL_SECONDS)


@dataclass(slots=True, kw_only=True)
class _Keeper:
    """Writes anchors where they are due."""

    file: str | None
    command: str | None
    key: Ed25519PrivateKey | None
    every: int | None
    interval_ms: int | None
    last: dict[str, KeptHead]  #: newest anchor by cluster
    at_ms: dict[str, int] = field(default_factory=dict)  #: when this process wrote it

    def take(self, head: LedgerHead, now_ms: int) -> bool:
        """Anchor the head if that is due; False where it contradicts the last anchor."""
        from policy.store import KeptHead

        last = self.last.get(head.cluster)
        if last is not None and not _continues(last, head):
            return False
        if self._due(head, last, now_ms):
            self._write(head, now_ms)
            self.last[head.cluster] = KeptHead(
                hash=head.hash, cluster=head.cluster, sequence=head.sequence
            )
            self.at_ms[head.cluster] = now_ms
        return True

    def _due(self, head: LedgerHead, last: KeptHead | None, now_ms: int) -> bool:
        if last is None or (self.every is None and self.interval_ms is None):
            return True
        followed = head.sequence - (last.sequence or 0)
        if self.every is not None and followed >= self.every:
            return True
        waited = now_ms - self.at_ms.get(head.cluster, 0)
        return self.interval_ms is not None and followed > 0 and waited >= self.interval_ms

    def _write(self, head: LedgerHead, now_ms: int) -> None:
        from policy.audit import anchors

        line = anchors.Anchor(head=head, anchored_ms=now_ms).line(self.key)
        if self.file is not None:
            anchors.append(self.file, line)
            output.say(
                f"entry {head.sequence} of cluster {head.cluster} is anchored in {self.file}"
            )
        if self.command is not None:
            _run(self.command, line, head)
        if self.file is None and self.command is None:
            output.data(f"{json_escaped(line)}\n")


def _continues(last: KeptHead, head: LedgerHead) -> bool:
    """Says what is wrong where the ledger does not go on from its last anchor."""
    sequence = last.sequence or 0
    if head.sequence > sequence or (head.sequence == sequence and head.hash == last.hash):
        return True
    output.say(
        f"cluster {head.cluster}: the ledger ends with entry {head.sequence}, {head.hash},"
        f" but entry {sequence}, {last.hash}, was anchored before"
    )
    output.say("  help: `policy audit verify --anchors FILE` shows what is missing")
    return False


def _run(command: str, line: str, head: LedgerHead) -> None:
    """Run a command with an anchor; raises ClickException with its status where it fails."""
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        input=line + "\n",
        env={
            **os.environ,
            "POLICY_ANCHOR_CLUSTER": head.cluster,
            "POLICY_ANCHOR_SEQUENCE": str(head.sequence),
            "POLICY_ANCHOR_HASH": head.hash,
            "POLICY_ANCHOR_AT": session.instant(head.at_ms),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.stdout:
        output.say(done.stdout.rstrip("\n"))
    if done.returncode:
        ended = f"status {done.returncode}"
        if done.returncode < 0:
            ended = f"signal {-done.returncode}"
        raise click.ClickException(f"the command `{command}` of `--exec` ended with {ended}")
