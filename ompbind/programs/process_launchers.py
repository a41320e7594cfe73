"""Commands that start the processes of a job: `mpirun -n 4 ./app`, `torchrun --nproc-per-node 4 train.py`.

MPI launchers, Slurm and Flux bind each process by rules of their own. torchrun binds none: all its processes
share the CPUs of the rank that torchrun is. In both cases ompbind should be started by the launcher, once for
each process.
"""

import os
from collections.abc import Mapping, Sequence

from ompbind.programs.find_command import find_file
from ompbind.programs.known_programs import PROCESS_LAUNCHERS, TORCHRUN, find_launcher_name, is_torchrun
from ompbind.record import Record

_WORKERS = ("--nproc-per-node", "--nproc_per_node")
_MODULE = ("-m", "--module")
_NO_PYTHON = ("--no-python", "--no_python")
_FLAGS = ("--standalone", "--run-path", "--run_path", *_MODULE, *_NO_PYTHON)
"""Options of torchrun without a value; all other options have one."""


class Launch(Record):
    """The processes that a command line starts.

    `text` is the launcher with its options. `instead` is the command line in which `ompbind exec` binds each
    process. `workers` is their number if the launcher does not bind them: a number, or a word such as "gpu".
    """

    text: str
    instead: str
    workers: str = ""


def read_launch(path: str, words: Sequence[str], env: Mapping[str, str]) -> Launch | None:
    """Return which processes a program starts, given its arguments; None if it is no launcher.

    None too if it starts `ompbind`, and if torchrun starts a single process, which has the CPUs of its rank.
    """
    if any(os.path.basename(word) == "ompbind" for word in words):
        return None
    name = os.path.basename(path)
    if is_torchrun(path, words):
        start = 0 if name == TORCHRUN else 2  # behind `-m MODULE`
        return _read_torchrun([name, *words[:start]], words[start:])
    subcommands = PROCESS_LAUNCHERS.get(find_launcher_name(path))
    if subcommands is None or (subcommands and (not words or words[0] not in subcommands)):
        return None
    start = find_command_word(words, env, first=len(subcommands[:1]))
    own_words = [name, *words[:start]] if start < len(words) else [name, *words[: len(subcommands[:1])]]
    text = " ".join(own_words).removesuffix(" --")
    if start == len(words):
        return Launch(text=text, instead=f"{text} ... ompbind exec -- CMD")
    return _make_launch(text, text, words[start:])


def find_command_word(words: Sequence[str], env: Mapping[str, str], first: int = 0) -> int:
    """Return the position of the word that is a command, from `first` on; the number of words if none is.

    An option or a NAME=VALUE is no command, nor is a word that names no executable file.
    """
    found = (
        position
        for position in range(first, len(words))
        if words[position][:1] != "-" and "=" not in words[position] and find_file(words[position], env)
    )
    return next(found, len(words))


def _read_torchrun(own_words: Sequence[str], words: Sequence[str]) -> Launch | None:
    """Return which processes torchrun starts."""
    start, workers = 0, ""
    while start < len(words) and words[start].startswith("-"):
        option, equals, value = words[start].partition("=")
        has_value = not equals and option not in _FLAGS
        if option in _WORKERS:
            workers = value or "".join(words[start + 1 : start + 2])
        start += 1 + has_value
    program, options = words[start:], words[:start]
    if workers in ("", "1") or not program:
        return None
    if not set(_NO_PYTHON) & set(options):
        program = ["python", *(["-m"] if set(_MODULE) & set(options) else []), *program]
    kept = [word for word in options if word not in (*_MODULE, *_NO_PYTHON)]
    launcher = " ".join([*own_words, "--no-python", *kept])
    return _make_launch(" ".join([*own_words, *options]), launcher, program).replace(workers=workers)


def _make_launch(text: str, launcher: str, command: Sequence[str]) -> Launch:
    """Return the processes of a command that `launcher` should start; long commands are cut."""
    shown = " ".join([*command[:_SHOWN_WORDS], *(["..."] if len(command) > _SHOWN_WORDS else [])])
    return Launch(text=text, instead=f"{launcher} ompbind exec -- {shown}")


_SHOWN_WORDS = 3
"""Words of a command that a message shows."""
