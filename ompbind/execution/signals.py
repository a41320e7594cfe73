"""The functions and numbers of `signal` without its enums, which take time in each start.

The import of `signal` defines these enums, and its functions make one of each number. Here signals are plain
numbers; `signal_name` of `outcome` knows their names.
"""

TYPE_CHECKING = False  # type checkers know this name
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

__all__ = ["signal"]
