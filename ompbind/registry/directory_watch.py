"""Sleep until files in a directory may have changed: by inotify, or by looking again.

The kernel reports when a file is renamed, removed, or closed by its last process, also because that was
killed. It releases the lock of a file a moment after it has reported the close. So the caller looks again
soon after each change, and then after longer and longer times. These also find changes if inotify is not
available: other systems have none, and Linux limits the number of watches of a user.
"""

import os
import select
import struct
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

_CHANGES = 0x8 | 0x80 | 0x200
"""Events of inotify(7): a file that was open for writing is closed, renamed to a name here, or removed."""

_EVENT = struct.Struct("iIII")
"""The start of an event: watch, mask, cookie, and the length of the name behind it."""

Names: TypeAlias = Callable[[str], bool]
"""Returns whether a change of a file with this name matters; "" stands for any file: events were lost."""

_FIRST_DELAY_S = 0.02
_LONGEST_DELAY_S = 30.0  # with inotify
_POLLING_DELAY_S = 1.0  # the longest delay without


class DirectoryWatch:
    """A watch on a directory. Changes after it was made end its next sleep."""

    def __init__(self, directory: str) -> None:
        self._file = _open_watch(directory)
        self._longest_s = _LONGEST_DELAY_S if self._file >= 0 else _POLLING_DELAY_S
        self._delay_s = _FIRST_DELAY_S

    def sleep(self, limit_s: float, names: Names) -> None:
        """Sleep until a file whose name `names` accepts may have changed, or for `limit_s` seconds."""
        limit_s = min(self._delay_s, limit_s)
        self._delay_s = min(2 * self._delay_s, self._longest_s)  # unless there is a change
        if self._file < 0:
            time.sleep(limit_s)
            return
        poll, deadline = select.poll(), time.monotonic() + limit_s
        poll.register(self._file, select.POLLIN)
        while (left_s := deadline - time.monotonic()) > 0:
            if poll.poll(1000 * left_s) and any(map(names, _parse_names(os.read(self._file, 1 << 16)))):
                self._delay_s = _FIRST_DELAY_S
                return

    def close(self) -> None:
        """Stop the watch."""
        if self._file >= 0:
            os.close(self._file)


def _open_watch(directory: str) -> int:
    """Return an inotify descriptor for the changes in a directory; -1 if there is no inotify."""
    try:
        import ctypes  # noqa: PLC0415 - door: loads libffi

        libc = ctypes.CDLL(None)
        file: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    except (ImportError, OSError, AttributeError):  # another system
        return -1
    if file >= 0 and libc.inotify_add_watch(file, os.fsencode(directory), _CHANGES) < 0:
        os.close(file)
        return -1
    return file


def _parse_names(events: bytes) -> Iterator[str]:
    """Yield the names of the files that events are about; "" if events were lost."""
    position = 0
    while position < len(events):
        *_, length = _EVENT.unpack_from(events, position)
        position += _EVENT.size + length
        yield os.fsdecode(events[position - length : position].rstrip(b"\0"))
