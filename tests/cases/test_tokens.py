"""The file of tokens, and the sessions that its key signs."""

from __future__ import annotations

import errno
import grp
import hmac
import json
import logging
import os
import pwd
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.requests import Request

from policy.cli.app import cli
from policy.cli.session import instant
from policy.server.config import Config
from policy.server.security import access as module
from policy.server.security import tokens as module_tokens
from policy.server.security.access import Access
from policy.server.security.tokens import Role, TokenError, TokenFile, hashed

NOW_MS = 1_790_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def opened(path: Path) -> Access:
    return Access(Config(db="unused.db", tokens=path), clock=lambda: NOW_MS)


def request(**headers: str) -> Request:
    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "scheme": "http", "path": "/", "headers": given})


def with_cookie(value: str) -> Request:
    return request(cookie=f"policy={value}")


def changed(path: Path, **values: Any) -> None:
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({k: v for k, v in {**document, **values}.items() if v is not None}))


@pytest.mark.parametrize("key", [None, "", "00", "a" * 63, "x" * 64, "A" * 64])
def test_a_key_that_can_be_guessed_is_refused(path: Path, key: str | None) -> None:
    """Missing, empty, short or no digits: with it anybody could sign the session of any token."""
    file = TokenFile(path)
    file.create("one", Role.ADMIN, namespaces=None, now_ms=1)
    changed(path, session_key=key)
    said = f"{path}: `session_key` is missing or less than 64 hexadecimal digits"
    for use in (
        file.read,
        file.tokens,
        lambda: opened(path),
        lambda: file.create("two", Role.ADMIN, namespaces=None, now_ms=1),
    ):
        with pytest.raises(TokenError) as refused:
            use()
        assert refused.value.message == said


def test_a_key_that_becomes_guessable_lets_nobody_in(path: Path) -> None:
    """A running service accepts no token until the file is mended."""
    secret = TokenFile(path).create("one", Role.ADMIN, namespaces=None, now_ms=1)
    access = opened(path)
    asked = request(authorization=f"Bearer {secret}")
    assert access.principal(asked) is not None
    kept = json.loads(path.read_bytes())["session_key"]
    changed(path, session_key="")
    access._looked = 0.0
    assert access.principal(asked) is None
    changed(path, session_key=kept)
    access._looked = 0.0
    assert access.principal(asked) is not None


def test_the_hash_of_a_token_is_one(path: Path) -> None:
    TokenFile(path).create("one", Role.ADMIN, namespaces=None, now_ms=1)
    tokens = json.loads(path.read_bytes())["tokens"]
    changed(path, tokens=[{**tokens[0], "sha256": "é" * 64}])
    with pytest.raises(TokenError) as refused:
        opened(path)
    assert refused.value.message == f"{path}: `sha256` of token `one` is not 64 hexadecimal digits"


def test_a_session_names_its_token_whole(path: Path) -> None:
    """Less than its part of the hash is no session, even where the signature is right."""
    secret = TokenFile(path).create("one", Role.ADMIN, namespaces=None, now_ms=1)
    access = opened(path)
    key = bytes.fromhex(json.loads(path.read_bytes())["session_key"])
    expires = NOW_MS // 1000 + 60

    def signed(beginning: str) -> str:
        told = f"{beginning}.{expires}"
        return f"{told}.{hmac.new(key, f'session {told}'.encode(), sha256).hexdigest()}"

    whole = hashed(secret)
    beginnings = (whole[:32], "", whole[:1], whole[:31], whole[:33], whole, "é")
    found = [access.principal(with_cookie(signed(one))) for one in beginnings]
    assert [one is not None for one in found] == [True] + [False] * 6


def test_a_session_is_compared_with_every_token_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first token, the last one, none: as many comparisons, each of the same length."""
    file = TokenFile(path)
    held = [file.create(f"t{i}", Role.VIEWER, namespaces=None, now_ms=1) for i in range(5)]
    access = opened(path)
    compared: list[tuple[int, int]] = []
    compare = hmac.compare_digest

    def counting(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return compare(left, right)

    monkeypatch.setattr(module.hmac, "compare_digest", counting)
    found = {}
    for secret in (held[0], held[4]):
        session = access.session(secret)
        assert session is not None
        compared.clear()
        principal = access.principal(with_cookie(session))
        found[principal and principal.name] = list(compared)
    assert found == dict.fromkeys(("t0", "t4"), [(64, 64)] + [(32, 32)] * 5)


def test_uses_up_to_the_end_are_noted(path: Path) -> None:
    """Those of the last minute, too, which were not in the file when the service ended."""
    file = TokenFile(path)
    secrets = [file.create(f"t{i}", Role.VIEWER, namespaces=None, now_ms=1) for i in range(3)]
    access = opened(path)
    for secret in secrets:
        assert access.of_secret(secret) is not None
    access.close()
    assert file.last_used() == {hashed(secret): NOW_MS for secret in secrets}


def test_no_request_waits_until_uses_are_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may stand still. What is used meanwhile is written in the end."""
    file = TokenFile(path)
    secrets = [file.create(f"t{i}", Role.VIEWER, namespaces=None, now_ms=1) for i in range(3)]
    monkeypatch.setattr(module, "_NOTE_SECONDS", 0.0)
    write, moves = TokenFile.note_use, threading.Event()

    def slow(of: TokenFile, used: dict[str, int]) -> None:
        assert moves.wait(60)
        write(of, used)

    monkeypatch.setattr(TokenFile, "note_use", slow)
    access = opened(path)
    for secret in secrets:
        assert access.of_secret(secret) is not None
    assert file.last_used() == {}
    moves.set()
    access.close()
    assert file.last_used() == {hashed(secret): NOW_MS for secret in secrets}


def test_it_is_said_once_that_uses_cannot_be_noted(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that can only be read, as Kubernetes mounts a secret; the token works."""
    secret = TokenFile(path).create("one", Role.VIEWER, namespaces=None, now_ms=1)
    monkeypatch.setattr(module, "_NOTE_SECONDS", 0.0)
    access = opened(path)
    access._file = TokenFile(Path("/proc/self/attr/tokens.json"))  # nobody can make a file there
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert access.of_secret(secret) is not None
        access.close()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("when tokens are used is not kept: `/proc/self/attr/tokens.json.used`")


def test_uses_are_noted_where_it_is_said(path: Path) -> None:
    """Beside a file that can only be read nothing is written, and the list shows them."""
    file = TokenFile(path)
    secret = file.create("one", Role.VIEWER, namespaces=["all"], now_ms=1)
    file.create("two", Role.ADMIN, namespaces=None, now_ms=1)
    uses = path.with_name("uses.json")
    access = Access(Config(db="unused.db", tokens=path, token_uses=uses), clock=lambda: NOW_MS)
    assert access.of_secret(secret) is not None
    access.close()
    assert sorted(one.name for one in path.parent.iterdir()) == ["tokens.json", "uses.json"]
    listed = ["token", "list", "--tokens", str(path), "--token-uses", str(uses)]
    told = json.loads(CliRunner().invoke(cli, [*listed, "-o", "json"]).stdout)
    assert [(one["name"], one["namespaces"], one["last_used"]) for one in told] == [
        ("one", ["all"], instant(NOW_MS)),
        ("two", None, ""),
    ]
    table = CliRunner().invoke(cli, listed).stdout.splitlines()
    assert [line.split()[2] for line in table[2:]] == ["all", "*"]


@pytest.mark.parametrize(
    "contents",
    [None, b"SQLite format 3\0", b'{"visits": 7}', b'{"\xff": 7}'],
    ids=["tokens", "other", "figures", "no-text"],
)
def test_no_other_file_is_taken_for_that_of_uses(path: Path, contents: bytes | None) -> None:
    """It would be replaced: the service does not start, and the file stays as it is.

    contents: None for the file of tokens itself.
    """
    secret = TokenFile(path).create("one", Role.VIEWER, namespaces=None, now_ms=1)
    uses = path if contents is None else path.with_name("uses.json")
    config = Config(db="unused.db", tokens=path, token_uses=uses)
    access = None if contents is None else Access(config, clock=lambda: NOW_MS)
    if contents is not None:
        uses.write_bytes(contents)
    before = uses.read_bytes()
    said = f"{uses}: not a file of when tokens were used; it is left as it is"
    with pytest.raises(TokenError) as refused:
        Access(config, clock=lambda: NOW_MS)
    assert refused.value.message == said
    listed = ["token", "list", "--tokens", str(path), "--token-uses", str(uses)]
    assert CliRunner().invoke(cli, listed).stderr.splitlines()[:1] == [said]
    if access is not None:  # it was put there while the service runs
        assert access.of_secret(secret) is not None
        access.close()
    assert uses.read_bytes() == before


# --- whose the file is ----------------------------------------------------------------------------

OWNER, GROUP, OTHER = 12345, 23456, 34567
"""Users and a group that no machine knows, so that they are shown as numbers."""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A file of tokens in a folder that every user can write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name) / "tokens.json"


@contextmanager
def another_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Somebody who may not give a file to others; files that were there are not theirs."""
    if os.geteuid() == 0:
        groups = os.getgroups()
        os.setgroups([])
        os.seteuid(OTHER)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setgroups(groups)
        return

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    # Nobody but root can become somebody else: the system's answer is made here.
    with monkeypatch.context() as patched:
        patched.setattr(module_tokens.os, "fstat", lambda _: Path("/").stat())
        patched.setattr(module_tokens.os, "fchown", refuse)
        patched.setattr(module_tokens.os, "geteuid", lambda: OTHER)
        yield


def state_of(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


def test_a_changed_file_stays_with_its_owner(path: Path) -> None:
    """Whoever changes it, the service can read it afterwards: owner, group, mode, links to it."""
    target = path.with_name("mounted.json")
    file = TokenFile(path)
    path.symlink_to(target)
    file.create("one", Role.ADMIN, namespaces=None, now_ms=1)
    assert state_of(target)[2] == 0o600
    root = os.geteuid() == 0
    owner = (OWNER, GROUP) if root else (os.getuid(), max(os.getgroups(), default=os.getgid()))
    os.chown(target, *owner)
    target.chmod(0o640)
    file.create("two", Role.ADMIN, namespaces=None, now_ms=1)
    file.revoke("one", now_ms=2)
    assert (state_of(target), path.readlink()) == ((*owner, 0o640), target)
    assert [(one.name, one.revoked_ms) for one in file.tokens()] == [("one", 2), ("two", None)]
    assert sorted(one.name for one in path.parent.iterdir()) == ["mounted.json", "tokens.json"]


def test_who_cannot_leave_the_file_to_its_owner_changes_nothing(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the service would lose the file, and every caller with it."""
    file = TokenFile(shared)
    file.create("one", Role.ADMIN, namespaces=None, now_ms=1)
    shared.chmod(0o644)
    before = shared.read_bytes(), state_of(shared)
    with another_user(monkeypatch), pytest.raises(TokenError) as refused:
        file.revoke("one", now_ms=2)
    user, group = pwd.getpwuid(before[1][0]).pw_name, grp.getgrgid(before[1][1]).gr_name
    assert (refused.value.message, refused.value.help) == (
        f"{shared}: the system does not permit that: the file belongs to user `{user}` and group"
        f" `{group}`",
        f"run the command as user `{user}` or as root; the file keeps its owner, group and mode",
    )
    assert (shared.read_bytes(), state_of(shared)) == before
    assert [one.name for one in shared.parent.iterdir()] == ["tokens.json"]


@pytest.mark.parametrize("version", [0, 2])
def test_another_version_of_the_file_is_refused(path: Path, version: int) -> None:
    """Its fields may mean something else: none is looked at."""
    file = TokenFile(path)
    file.create("one", Role.ADMIN, namespaces=None, now_ms=1)
    changed(path, version=version, more=[])
    for use in (file.read, lambda: opened(path), lambda: file.revoke("one", now_ms=2)):
        with pytest.raises(TokenError) as refused:
            use()
        assert refused.value.message == (
            f"{path}: `version` is {version}, and this version of the program reads 1"
        )


def test_a_service_that_cannot_read_the_file_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log, and as long as it lasts to whoever looks whether it is ready."""
    secret = TokenFile(path).create("one", Role.ADMIN, namespaces=None, now_ms=1)
    access = opened(path)
    asked = request(authorization=f"Bearer {secret}")
    kept = path.read_bytes()
    found = [access.problem]
    path.unlink()
    path.mkdir()
    for _ in range(3):
        access._looked = 0.0
        assert access.principal(asked) is None
    found.append(access.problem)
    path.rmdir()
    path.write_bytes(kept)
    access.reread()
    assert access.principal(asked) is not None
    found.append(access.problem)
    said = f"no token is accepted: {path}: is a folder, not a file"
    assert found == ["", said, ""]
    assert [record.getMessage() for record in caplog.records] == [
        said,
        f"tokens are accepted again: `{path}` can be read",
    ]


def test_a_new_token_logs_in_and_a_revoked_one_does_not(path: Path) -> None:
    """Also where nothing but the form of the login is sent since the file changed."""
    file = TokenFile(path)
    file.create("one", Role.ADMIN, namespaces=None, now_ms=1)
    access = opened(path)
    secret = file.create("two", Role.VIEWER, namespaces=None, now_ms=2)
    access._looked = 0.0  # a second later
    found = [access.session(secret) is not None]
    file.revoke("two", now_ms=3)
    access._looked = 0.0
    found.append(access.session(secret) is not None)
    assert found == [True, False]


def test_a_file_is_read_at_once_where_that_is_wanted(path: Path) -> None:
    """Not a second later."""
    file = TokenFile(path)
    secret = file.create("one", Role.ADMIN, namespaces=None, now_ms=1)
    access = opened(path)
    asked = request(authorization=f"Bearer {secret}")
    assert access.principal(asked) is not None
    file.revoke("one", now_ms=2)
    access.reread()
    assert access.principal(asked) is None


def test_what_is_to_be_revoked_is_in_a_file(path: Path) -> None:
    """Only `create` makes one: elsewhere a name that is mistyped would be an empty file."""
    with pytest.raises(TokenError) as refused:
        TokenFile(path).revoke("one", now_ms=1)
    assert (refused.value.message, refused.value.help, path.exists()) == (
        f"there is no file of tokens at `{path}`",
        "`policy token create NAME --role admin --tokens FILE` makes it",
        False,
    )


@pytest.mark.parametrize(
    ("contents", "said"),
    [
        (b'{"version": 1, ', "Input data was truncated"),
        (b'{"version": 1, "session_key": "\xff"}', "one of its texts is not UTF-8"),
    ],
)
def test_a_damaged_file_is_said_with_what_to_do(path: Path, contents: bytes, said: str) -> None:
    path.write_bytes(contents)
    with pytest.raises(TokenError) as refused:
        TokenFile(path).read()
    assert (refused.value.message, refused.value.help) == (
        f"{path}: not a file of tokens: {said}",
        "name the file that `policy token create` made; where this is it, and it is damaged,"
        " restore it from a copy",
    )
