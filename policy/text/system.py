"""What the operating system says of a file, in the words of our messages."""

from __future__ import annotations

import errno
import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemProblem:
    """Why the system refused: what stands behind `path: `, and what to do about it."""

    message: str
    help: str = ""


_ROOM: Final = "free some space, or name a place on another disk"
_READABLE: Final = (
    "the user who runs the command needs the right to it, and to every folder above it"
)

_WORDS: Final = {
    errno.ENOENT: SystemProblem(message="no such file or folder"),
    errno.EACCES: SystemProblem(message="permission denied", help=_READABLE),
    errno.EPERM: SystemProblem(message="the system does not permit that", help=_READABLE),
    errno.ENOTDIR: SystemProblem(
        message="not a folder, or a path that leads through a file as if it were one"
    ),
    errno.EISDIR: SystemProblem(message="is a folder, not a file"),
    errno.ENAMETOOLONG: SystemProblem(
        message="the name is longer than the file system allows",
        help="if this is text and not the name of a file, give it on standard input",
    ),
    errno.ELOOP: SystemProblem(
        message="a symbolic link that leads to itself", help="`readlink` shows where links lead"
    ),
    errno.ENOSPC: SystemProblem(message="no space left on the device", help=_ROOM),
    errno.EDQUOT: SystemProblem(message="the disk quota is used up", help=_ROOM),
    errno.EFBIG: SystemProblem(message="the file would be larger than the system allows"),
    errno.EROFS: SystemProblem(
        message="the file system is read-only", help="name a place that can be written"
    ),
    errno.EMFILE: SystemProblem(message="too many open files", help="`ulimit -n` raises the limit"),
    errno.ENFILE: SystemProblem(message="too many open files on this machine"),
    errno.ENOMEM: SystemProblem(message="not enough memory"),
    errno.EIO: SystemProblem(
        message="input/output error", help="the device cannot be read or written; see `dmesg`"
    ),
    errno.EBADF: SystemProblem(message="is closed"),
    errno.ENXIO: SystemProblem(message="no device or process answers there"),
}


def explained(error: OSError | ValueError) -> SystemProblem:
    """The words for an error; what has none of ours keeps the system's, in lower case.

    A ValueError is what Python raises for a path that no file can have.
    """
    if isinstance(error, UnicodeEncodeError):
        return SystemProblem(
            message="a name that this locale cannot express", help="set `LC_ALL=C.UTF-8`"
        )
    if not isinstance(error, OSError):
        return SystemProblem(message="a name with a NUL character, which no file can have")
    known = None if error.errno is None else _WORDS.get(error.errno)
    if known is not None:
        return known
    text = error.strerror or (os.strerror(error.errno) if error.errno else str(error))
    return SystemProblem(message=(text or type(error).__name__)[:1].lower() + text[1:])


def whose(path: Path, what: str = "the file") -> SystemProblem | None:
    """Whose a file is, where that may be why it is refused, and who has to run the command.

    what: stands for it in the message. None where it is the user's own, or cannot be seen.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    me, groups = os.geteuid(), {os.getegid(), *os.getgroups()}
    if me == 0 or (me == status.st_uid and status.st_gid in groups):
        return None
    user, group = _user(status.st_uid), _group(status.st_gid)
    who = f"a member of group `{group}`" if me == status.st_uid else f"user `{user}`"
    return SystemProblem(
        message=f"{what} belongs to user `{user}` and group `{group}`",
        help=f"run the command as {who} or as root",
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
