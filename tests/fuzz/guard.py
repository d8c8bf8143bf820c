"""What looking at a file must not do: write, start programs, open connections, take too long."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
EVENTS = frozenset(
    {
        "ctypes.dlopen", "os.chmod", "os.chown", "os.exec", "os.fork", "os.forkpty", "os.link", "os.mkdir",
        "os.posix_spawn", "os.putenv", "os.remove", "os.rename", "os.rmdir", "os.spawn", "os.startfile", "os.symlink",
        "os.system", "os.truncate", "os.utime", "pickle.find_class", "shutil.copyfile", "shutil.move", "shutil.rmtree",
        "socket.bind", "socket.connect", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen", "tempfile.mkdtemp",
        "tempfile.mkstemp",
    }
)  # fmt: skip

CACHE = "__pycache__"
"""There Python and Numba keep what they have compiled."""

_seen: list[str] | None = None


class TooLongError(BaseException):
    """No `except Exception` of ours may swallow it."""


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if _seen is None or (arguments and CACHE in str(arguments[0])):
        return
    if event == "open":
        path, mode, flags = arguments
        if (isinstance(flags, int) and flags & WRITING) and path != os.devnull:
            _seen.append(f"open({path!r}, {mode!r})")
    elif event in EVENTS:
        _seen.append(f"{event}{arguments!r}")


_hooked = False


@contextmanager
def watched(seconds: float) -> Iterator[list[str]]:
    """What is done inside that must not be, as a list that grows; TooLongError after some
    seconds of the processor."""
    global _hooked, _seen  # noqa: PLW0603  an audit hook cannot be taken away again
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    found: list[str] = []
    before = signal.signal(signal.SIGPROF, _ring)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1)  # again, should something swallow it
    _seen = found
    try:
        yield found
    finally:
        _seen = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise TooLongError
