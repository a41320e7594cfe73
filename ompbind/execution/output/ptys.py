"""What ranks write to: pipes, and pseudo-terminals for ranks that only send lines at once to a terminal."""

import fcntl
import os
import termios

_PIPE_SIZE = 1 << 20
"""Bytes that a pipe from a rank holds at most; without privileges the kernel allows no more."""

_PIPES_SIZE = 16 << 20
"""Bytes that all of them hold together: a user who has 64 MiB of pipes gets small ones only."""

_USUAL_SIZE = 64 << 10  # bytes that a pipe holds that nobody has enlarged

LINES, COLUMNS = 24, 80
"""The size of pseudo-terminals where ompbind has no terminal itself."""


def pipe_size(streams: int) -> int:
    """Return how many bytes each pipe should hold, a power of two."""
    share = min(_PIPE_SIZE, _PIPES_SIZE // max(streams, 1))
    return max(_USUAL_SIZE, 1 << (share.bit_length() - 1))


def open_pipe(size: int) -> tuple[int, int]:
    """Return the ends of a new pipe; reading from it never waits. Raises OSError."""
    source, end = os.pipe()
    os.set_blocking(source, False)
    if size > _USUAL_SIZE:
        try:
            fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            pass  # the user has many pipes already: it works as it is, if not as fast
    return source, end


def open_pty(size: tuple[int, int]) -> tuple[int, int]:
    """Return the ends of a new pseudo-terminal that passes bytes on as they are; raises OSError."""
    source, end = os.openpty()
    settings = termios.tcgetattr(end)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(end, termios.TCSANOW, settings)
    os.set_blocking(source, False)
    set_size(source, size)
    return source, end


def open_terminal() -> int:
    """Return a descriptor of its own of the terminal that ompbind shows on, -1 for none."""
    return next((os.dup(number) for number in (1, 2, 0) if os.isatty(number)), -1)


def read_size(terminal: int) -> tuple[int, int]:
    """Return lines and columns of a terminal, the usual ones where there is none or it does not know."""
    try:
        lines, columns = termios.tcgetwinsize(terminal)
    except (OSError, ValueError, termios.error):
        lines = columns = 0
    return lines or LINES, columns or COLUMNS


def set_size(terminal: int, size: tuple[int, int]) -> None:
    """Set lines and columns of a terminal; one that is gone needs none."""
    try:
        termios.tcsetwinsize(terminal, size)
    except (OSError, termios.error):
        pass
