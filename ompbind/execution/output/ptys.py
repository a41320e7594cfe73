"""The files that ranks write to: pipes, and pseudo-terminals for programs that buffer lines on pipes."""

import fcntl
import os
import termios

_PIPE_BYTES = 1 << 20
"""Capacity of the pipe of one stream at most; the kernel allows unprivileged users no more."""

_ALL_PIPES_BYTES = 16 << 20
"""Capacity of all pipes together: beyond 64 MiB per user the kernel makes only small pipes."""

_DEFAULT_PIPE_BYTES = 64 << 10  # capacity of a new pipe

LINES, COLUMNS = 24, 80
"""The size of pseudo-terminals if ompbind itself has no terminal."""


def choose_pipe_size(streams: int) -> int:
    """Return the capacity of each pipe in bytes, a power of two."""
    share = min(_PIPE_BYTES, _ALL_PIPES_BYTES // max(streams, 1))
    return max(_DEFAULT_PIPE_BYTES, 1 << (share.bit_length() - 1))


def open_pipe(size: int) -> tuple[int, int]:
    """Return the read end, which does not block, and the write end of a new pipe. Raises OSError."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    if size > _DEFAULT_PIPE_BYTES:
        try:
            fcntl.fcntl(read_end, fcntl.F_SETPIPE_SZ, size)
        except OSError:
            pass  # the user has too many pipes: a small pipe works too, only slower
    return read_end, write_end


def open_pty(size: tuple[int, int]) -> tuple[int, int]:
    """Return the read end and the write end of a new pseudo-terminal that passes bytes on unchanged.

    `size` is its lines and columns. Raises OSError.
    """
    read_end, write_end = os.openpty()
    settings = termios.tcgetattr(write_end)
    settings[1] &= ~termios.OPOST
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(write_end, termios.TCSANOW, settings)
    os.set_blocking(read_end, False)
    set_size(read_end, size)
    return read_end, write_end


def open_terminal() -> int:
    """Return a new descriptor of the terminal of ompbind, -1 if it has none."""
    return next((os.dup(fd) for fd in (1, 2, 0) if os.isatty(fd)), -1)


def read_size(terminal: int) -> tuple[int, int]:
    """Return lines and columns of a terminal; 24 and 80 if there is no terminal or its size is unknown."""
    try:
        lines, columns = termios.tcgetwinsize(terminal)
    except (OSError, ValueError, termios.error):
        lines = columns = 0
    return lines or LINES, columns or COLUMNS


def set_size(terminal: int, size: tuple[int, int]) -> None:
    """Set lines and columns of a terminal; do nothing if it is closed."""
    try:
        termios.tcsetwinsize(terminal, size)
    except (OSError, termios.error):
        pass
