"""`policy audit anchor`, and `policy audit verify` with heads that were kept outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from policy.cli.app import run
from policy.store import Store
from tests.acceptance.commands import Done
from tests.contract.builders import NOW, a_pod
from tests.contract.filled import fill
from tests.contract.test_ledger import tampering


@pytest.fixture
def policy(database_url, capsys, tmp_path, monkeypatch):
    """Runs one command line on a database with two clusters, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with Store.open(database_url) as store:
        fill(store)
        store.record.import_objects("other", [a_pod("a/b")], at_ms=NOW, source="dump.json")

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        status = run([*arguments, "--db", database_url])
        return Done(status, *capsys.readouterr())

    return call


def keys(name: str = "key") -> tuple[str, str]:
    """A pair of keys, made as the documentation says."""
    private, public = f"{name}.pem", f"{name}-public.pem"
    for line in (
        f"openssl genpkey -algorithm ed25519 -out {private}",
        f"openssl pkey -in {private} -pubout -out {public}",
    ):
        subprocess.run(line.split(), check=True)
    return private, public


def changed(file: str, line: int, **values: object) -> None:
    lines = Path(file).read_text().splitlines()
    lines[line] = json.dumps({**json.loads(lines[line]), **values})
    Path(file).write_text("\n".join(lines) + "\n")


def replaced(file: str, line: int, text: str) -> None:
    lines = Path(file).read_text().splitlines()
    Path(file).write_text("\n".join([*lines[:line], text, *lines[line + 1 :]]) + "\n")


def cut(file: str) -> None:
    """As a full disk leaves it."""
    Path(file).write_text(Path(file).read_text()[:-40])


def one_more(database_url: str) -> None:
    with Store.open(database_url) as store:
        at = store.state.head_revision("other")
        pod = a_pod("a/b", node=f"n{at}")
        store.record.change(
            "other", [("Pod", "a/b", pod)], at_ms=NOW + 50, source="w", cause="live"
        )


def test_heads_are_kept_in_a_file_and_checked(policy, database_url):
    """One line a cluster, behind the others; all of them are proven afterwards."""
    assert policy("audit", "anchor", "--file", "heads.jsonl").status == 0
    one_more(database_url)
    assert policy("audit", "anchor", "--file", "heads.jsonl").status == 0
    found = [json.loads(line) for line in Path("heads.jsonl").read_text().splitlines()]
    assert [(a["anchor"], a["cluster"], a["sequence"]) for a in found] == [
        (1, "default", 10),
        (1, "other", 1),
        (1, "default", 10),
        (1, "other", 2),
    ]
    done = policy("audit", "verify", "--anchors", "heads.jsonl")
    assert (done.status, done.out, "4 anchors in heads.jsonl" in done.err) == (0, "", True)


def test_what_was_cut_off_after_an_anchor_is_found(policy, database_url):
    """By `verify`, and by the next anchor."""
    policy("audit", "anchor", "--file", "heads.jsonl")
    with tampering(database_url) as connection:
        for statement in (
            "DELETE FROM ledger WHERE cluster_id = 2",
            "DELETE FROM pods WHERE cluster_id = 2",
            "DELETE FROM revisions WHERE cluster_id = 2",
            "DELETE FROM clusters WHERE id = 2",
        ):
            connection.execute(text(statement))
        connection.commit()
    assert policy("audit", "verify").status == 0
    done = policy("audit", "verify", "--anchors", "heads.jsonl", "--output", "json")
    (found,) = json.loads(done.out)["findings"]
    assert (done.status, found["cluster"], found["sequence"], found["harm"]) == (
        6,
        "other",
        1,
        "removed",
    )
    changed("heads.jsonl", 0, sequence=11)
    done = policy("audit", "anchor", "--file", "heads.jsonl")
    assert (done.status, "but entry 11" in done.err) == (6, True)


def test_signed_anchors_are_checked_with_the_public_key_alone(policy):
    """What is signed passes; with openssl too, over the text that docs/formats.md tells of."""
    private, public = keys()
    policy("audit", "anchor", "--file", "heads.jsonl", "--sign-key", private)
    Path(private).unlink()
    done = policy("audit", "verify", "--anchors", "heads.jsonl", "--public-key", public)
    assert (done.status, "signatures" in done.err) == (0, False)
    value = json.loads(Path("heads.jsonl").read_text().splitlines()[0])
    signature = value.pop("signature").removeprefix("ed25519:")
    Path("text").write_text(json.dumps(value, sort_keys=True, separators=(",", ":")))
    Path("base64").write_text(signature + "\n")
    subprocess.run(
        ["openssl", "base64", "-d", "-A", "-in", "base64", "-out", "signature"], check=True
    )
    verify = "openssl pkeyutl -verify -pubin -rawin -in text -sigfile signature -inkey"
    subprocess.run([*verify.split(), public], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("harm", "detail"),
    [
        (lambda: changed("heads.jsonl", 0, sequence=9), "heads.jsonl:1: the anchor is not what"),
        (lambda: changed("heads.jsonl", 1, signature=None), "heads.jsonl:2: the anchor is not sig"),
        (lambda: changed("heads.jsonl", 0, signature="x"), "heads.jsonl:1: the signature is not"),
        (lambda: changed("heads.jsonl", 0, extra=1), "heads.jsonl:1: the anchor is not what"),
        (lambda: changed("heads.jsonl", 0, anchor=2), "heads.jsonl:1: the line is not an anchor"),
        (lambda: cut("heads.jsonl"), "heads.jsonl:2: the line is not JSON"),
        (lambda: replaced("heads.jsonl", 0, "{}"), "heads.jsonl:1: the line is not an anchor"),
        (keys, "heads.jsonl:1: the anchor is not what was signed, or another key"),
    ],
)
def test_anchors_that_are_not_genuine_are_findings(policy, harm, detail):
    """Changed, unsigned, signed with another key, or no anchors at all."""
    private, public = keys()
    policy("audit", "anchor", "--file", "heads.jsonl", "--sign-key", private)
    harm()
    done = policy(
        "audit", "verify", "--anchors", "heads.jsonl", "--public-key", public, "--output", "json"
    )
    first = json.loads(done.out)["findings"][0]
    assert (done.status, first["harm"], first["detail"][: len(detail)]) == (6, "forged", detail)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("anchor", "--sign-key", "text"), "text: not an Ed25519 private key in PEM"),
        (("verify", "--anchors", "empty"), "empty: there is no anchor in this file\n  help: name"),
        (("verify", "--anchors", "text"), "text: there is no anchor in this file\n  help: name"),
        (
            ("verify", "--anchors", "tokens"),
            "tokens: there is no anchor in this file\n  help: name",
        ),
        (("verify", "--public-key", "text"), "`--public-key` goes with `--anchors`"),
        (("anchor", "--interval", "1m"), "`--interval` goes with `--watch`"),
        (("anchor", "--watch", "--interval", "soon"), "`soon` is not like `60s`"),
        (("anchor", "--file", "missing/heads"), "missing/heads: No such file or directory"),
        (("anchor", "--file", "text"), "text:1: the line is not JSON"),
    ],
)
def test_a_wrong_use_is_said(policy, words, message):
    """Each mistake has its sentence, and nothing passes for verified."""
    Path("text").write_text("no key")
    Path("empty").write_text("\n")
    Path("tokens").write_text('{"version": 1,\n"tokens": []}\n{"version": 1}\n')
    done = policy("audit", *words)
    assert (done.status in (1, 2), done.out, message in done.err) == (True, "", True), done.err


def test_anchors_of_other_clusters_are_left_out_aloud(policy):
    """With `--cluster` only its anchors are checked, and the others are counted."""
    policy("audit", "anchor", "--file", "heads.jsonl")
    done = policy("audit", "verify", "--cluster", "other", "--anchors", "heads.jsonl")
    assert (done.status, "not checked: 1 anchor of other clusters" in done.err) == (0, True)


def test_a_command_gets_the_anchor(policy):
    """On standard input and in the environment; what it prints is not data."""
    script = 'read -r line; echo "$line" > got; echo "$POLICY_ANCHOR_CLUSTER:$POLICY_ANCHOR_HASH"'
    done = policy("audit", "anchor", "--cluster", "other", "--exec", script)
    value = json.loads(Path("got").read_text())
    assert (done.status, done.out, done.err.strip()) == (0, "", f"other:{value['hash']}")


def test_a_failing_command_is_an_error_with_its_status(policy):
    """The file was written before."""
    done = policy("audit", "anchor", "--file", "heads.jsonl", "--exec", "echo no; exit 3")
    assert (done.status, len(Path("heads.jsonl").read_text().splitlines())) == (1, 1)
    assert "no\n" in done.err
    assert "the command `echo no; exit 3` of `--exec` ended with status 3" in done.err


def test_every_nth_entry_is_anchored(policy, database_url):
    """Run again and again, it writes once enough entries followed the last anchor in the file."""
    counts = []
    for _ in range(4):
        call = ("audit", "anchor", "--cluster", "other", "--file", "h.jsonl", "--every", "2")
        assert policy(*call).status == 0
        counts.append(len(Path("h.jsonl").read_text().splitlines()))
        one_more(database_url)
    assert counts == [1, 1, 2, 2]


def test_watching_anchors_what_comes(policy, database_url):
    """A process that goes on writes the next head by itself, and ends when it is interrupted."""
    words = ["audit", "anchor", "--cluster", "other", "--file", "h.jsonl", "--watch"]
    started = subprocess.Popen(
        [sys.executable, "-m", "policy", *words, "--every", "1", "--db", database_url],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    )
    try:
        for lines in (1, 2):
            while not (Path("h.jsonl").exists() and _count("h.jsonl") == lines):
                assert started.poll() is None
                time.sleep(0.05)
            if lines == 1:
                one_more(database_url)
        started.send_signal(signal.SIGINT)
        assert started.wait(60) == 130
    finally:
        started.kill()


def _count(file: str) -> int:
    return Path(file).read_text().count("\n")
