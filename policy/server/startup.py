"""What a service is started with is tried before anybody calls: files that would fail later on."""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from policy.server.config import Config


class StartError(Exception):  # told to people in the words of its message
    """The service cannot be started as it is wanted."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help


def no_listener(host: str, port: int, exc: OSError) -> StartError:
    """Why the address cannot be used."""
    # A name that is unknown has a number of its own, below 0.
    reason = os.strerror(exc.errno) if exc.errno and exc.errno > 0 else exc.strerror
    return StartError(
        f"cannot listen on `{host}`, port {port}: {reason}",
        help="--host and --port say where the service listens",
    )


def tls_context(config: Config, cert: Path) -> ssl.SSLContext:
    """What connections are begun with. cert: that of `config`. Raises StartError."""
    key, client_ca = config.tls_key, config.client_ca
    for path in filter(None, (cert, key, client_ca)):
        try:
            path.read_bytes()
        except OSError as exc:
            raise StartError(f"{path}: {exc.strerror}") from exc
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # In a context of its own: whatever issued it issues no certificates of callers.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cert)
    except ssl.SSLError as exc:
        raise StartError(
            f"{cert}: not a certificate (PEM)", help="--tls-cert names the service's chain"
        ) from exc
    try:
        # A service cannot ask for the password of a key.
        context.load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as exc:
        if exc.reason == "KEY_VALUES_MISMATCH":
            raise StartError(
                f"{key or cert}: the key is not that of the certificate in `{cert}`"
            ) from exc
        if key is None:
            raise StartError(
                f"{cert}: there is no key that can be read beside the certificate",
                help="name the file of the key with --tls-key",
            ) from exc
        raise StartError(
            f"{key}: not a key that can be read", help="PEM, without a password"
        ) from exc
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as exc:
            raise StartError(
                f"{client_ca}: not a certificate (PEM)",
                help="--client-ca names the authority that issues the certificates of schedulers",
            ) from exc
        # People come without a certificate; who shows one is checked.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


_OUT_OF_DATE: Final = {9: "is not valid yet", 10: "has expired"}
"""What is said of a certificate, by the number that OpenSSL has for it."""


def out_of_date(context: ssl.SSLContext, cert: Path) -> str:
    """`has expired`, where callers refuse the certificate of a context for that; else "".

    They are tried: a caller in memory trusts the certificate itself, so that nothing but its time
    is wrong. cert: the file that it is of.
    """
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname = False
    caller.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_service, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        caller.load_verify_locations(cert)
        asks = caller.wrap_bio(to_caller, to_service)
        answers = context.wrap_bio(to_service, to_caller, server_side=True)
        for one in (asks, answers, asks):
            with suppress(ssl.SSLWantReadError):
                one.do_handshake()
    except ssl.SSLCertVerificationError as exc:
        return _OUT_OF_DATE.get(exc.verify_code, "")
    except OSError:  # another file is there by now; SSLError is one, too
        return ""
    return ""


def check_spool(folder: Path) -> None:
    """Raises StartError: a call that finds no place in the spool would be in no record."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".tried-"):
            pass
    except OSError as exc:
        raise StartError(
            f"the spool `{folder}` cannot be written: {exc.strerror}",
            help="--spool names a folder in which calls wait while the database is away",
        ) from exc
