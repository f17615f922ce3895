"""What `policy serve` does not start with, and says so: no file, no traceback, no silence."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from policy.store import Store

AUTHORITY = trustme.CA()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database, and files that are no more than their names say."""
    made = tmp_path_factory.mktemp("started")
    with Store.open(str(made / "a.db")):
        pass
    own, other = (AUTHORITY.issue_cert("127.0.0.1") for _ in range(2))
    own.cert_chain_pems[0].write_to_path(made / "c.pem")
    other.private_key_pem.write_to_path(made / "other.key")
    (made / "text.pem").write_text("no certificate\n")
    return made


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--tls-cert", "c.pem"],
            "c.pem: there is no key that can be read beside the certificate\n"
            "  help: name the file of the key with --tls-key\n",
        ),
        (
            ["--tls-cert", "c.pem", "--tls-key", "other.key"],
            "other.key: the key is not that of the certificate in `c.pem`\n",
        ),
        (
            ["--tls-cert", "c.pem", "--tls-key", "text.pem"],
            "text.pem: not a key that can be read\n  help: PEM, without a password\n",
        ),
        (
            ["--tls-cert", "text.pem"],
            "text.pem: not a certificate (PEM)\n  help: --tls-cert names the service's chain\n",
        ),
        (
            ["--spool", "a.db/x"],
            "the spool `a.db/x` cannot be written: Not a directory\n"
            "  help: --spool names a folder in which calls wait while the database is away\n",
        ),
        (
            ["--spool", "/proc/spool"],
            "the spool `/proc/spool` cannot be written: No such file or directory\n"
            "  help: --spool names a folder in which calls wait while the database is away\n",
        ),
    ],
)
def test_it_does_not_start_with_files_that_fail_later(
    folder: Path, options: list[str], said: str
) -> None:
    """The file is named, and what is wrong with it; status 1."""
    assert started(folder, *options) == (1, said)


def test_without_tokens_no_certificate_counts(folder: Path) -> None:
    """An authority protects nothing where certificates are not checked."""
    own = ("--tls-cert", "c.pem", "--client-ca", "c.pem")
    status, said = started(folder, *own)
    assert (status, said.splitlines()[-2:]) == (
        2,
        [
            "Error: `--client-ca` means nothing without `--tokens`",
            "  help: leave out `--client-ca`",
        ],
    )


def test_an_address_that_is_taken(folder: Path) -> None:
    """The options are named; status 1, as the documentation of the exit statuses has it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = started(folder, "--port", str(port))
    assert (status, said.splitlines()[-2:]) == (
        1,
        [
            f"cannot listen on `127.0.0.1`, port {port}: Address already in use",
            "  help: --host and --port say where the service listens",
        ],
    )


def test_the_database_of_the_reader(folder: Path) -> None:
    """What is wrong with it names its own option, and not that of the service's database."""
    assert started(folder, "--reader-url", "none.db") == (
        1,
        "--reader-url: there is no database at `none.db`\n"
        "  help: name it with --reader-url or POLICY_READER_DB; `policy import` creates one\n",
    )


def test_the_variable_of_the_tokens_commands_counts(folder: Path) -> None:
    """Whoever makes tokens with it set is not served without them."""
    assert started(folder, POLICY_TOKENS="none.json") == (
        1,
        "there is no file of tokens at `none.json`\n"
        "  help: `policy token create NAME --role admin --tokens FILE` makes it\n",
    )


def started(folder: Path, *options: str, **variables: str) -> tuple[int, str]:
    """Exit status and standard error of a service that does not start."""
    command = [sys.executable, "-m", "policy", "serve", "--db", "a.db", "--port", "0", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr
