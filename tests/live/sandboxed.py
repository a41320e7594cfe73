"""Run a command under seccomp filters that make system calls fail, as in containers.

`python sandboxed.py ERRNO NUMBER[=MODE]… -- COMMAND…`: with MODE only calls with this first argument fail.
With "kill" in place of ERRNO the call kills its process.
"""

import ctypes
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000


def make_filter(answer, number, mode):
    """Return BPF instructions that compare the number, and with a mode the first argument."""
    program = [(LOAD, 0, 0, 0), (EQUAL, 0, 1 if mode is None else 3, number)]
    if mode is not None:
        program += [(LOAD, 0, 0, 16), (EQUAL, 0, 1, mode)]
    program += [(RETURN, 0, 0, answer), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


if __name__ == "__main__":
    error, *words = sys.argv[1:]
    calls, command = words[: words.index("--")], words[words.index("--") + 1 :]
    answer = KILL if error == "kill" else ERROR | int(error)
    libc, word = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong
    for call in calls:
        number, _, mode = call.partition("=")
        program = make_filter(answer, int(number), int(mode) if mode else None)
        buffer = ctypes.create_string_buffer(program, len(program))
        header = struct.pack("HP", len(program) // 8, ctypes.addressof(buffer))
        for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, header, 0, 0)):
            if libc.prctl(*(value if isinstance(value, bytes) else word(value) for value in arguments)):
                sys.exit(f"cannot install a seccomp filter: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)
