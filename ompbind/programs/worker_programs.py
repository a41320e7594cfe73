"""Programs that start worker processes of their own, by the words of a command: `gunicorn -w 4 app:api`.

To add a program: a row in WORKER_PROGRAMS. Programs that start several processes only by their code, such as
a script with joblib, cannot be recognized.
"""

import os
from collections.abc import Mapping, Sequence

from ompbind.record import Record


class WorkerProgram(Record):
    """A program whose workers share the CPUs of one rank.

    `options` and the `variable` set the number of workers, which is `default` without them: "" for a single
    process, else a word for a number that the program chooses. If there is a `subcommand`, only this one
    starts workers. With a word of `threads` as the value of `pool`, the workers are threads. `runs_jobs`: the
    workers are commands with one thread each, as compilers are.
    """

    options: tuple[str, ...]
    variable: str = ""
    default: str = ""
    subcommand: str = ""
    pool: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    runs_jobs: bool = False


PYTHON_MANAGERS = (
    "uv", "uvx", "pixi", "poetry", "pdm", "hatch", "pipenv", "pipx", "conda", "mamba", "micromamba",
)  # fmt: skip
"""Package managers that start a Python of an environment: `uv run train.py`."""

_PYTEST = WorkerProgram(options=("-n", "--numprocesses"))

WORKER_PROGRAMS: Mapping[str, WorkerProgram] = {
    "gunicorn": WorkerProgram(options=("-w", "--workers"), variable="WEB_CONCURRENCY"),
    "uvicorn": WorkerProgram(options=("--workers",), variable="WEB_CONCURRENCY"),
    "fastapi": WorkerProgram(options=("--workers",), variable="WEB_CONCURRENCY", subcommand="run"),
    "hypercorn": WorkerProgram(options=("-w", "--workers")),
    "granian": WorkerProgram(options=("--workers",), variable="GRANIAN_WORKERS"),
    "uwsgi": WorkerProgram(options=("-p", "--processes", "--workers")),
    "celery": WorkerProgram(
        options=("-c", "--concurrency", "--autoscale"),
        default="one per CPU",
        subcommand="worker",
        pool=("-P", "--pool"),
        threads=("solo", "threads", "gevent", "eventlet"),
    ),
    "dramatiq": WorkerProgram(options=("-p", "--processes"), default="one per CPU"),
    "pytest": _PYTEST,
    "py.test": _PYTEST,
    "make": WorkerProgram(options=("-j", "--jobs"), runs_jobs=True),
    "ninja": WorkerProgram(options=("-j",), runs_jobs=True),
    "xargs": WorkerProgram(options=("-P", "--max-procs"), runs_jobs=True),
    "parallel": WorkerProgram(options=("-j", "--jobs"), runs_jobs=True),
}
"""The programs by their names, which are also the names of their modules: `python -m gunicorn`."""


def find_worker_program(path: str, words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the name of the program of a command that has a row, and its arguments; None for others.

    The program may be behind a Python or a package manager: `python -m gunicorn`, `uv run pytest`.
    """
    line = [os.path.basename(path), *words]
    if line[0] in PYTHON_MANAGERS and "run" in line:
        line = [word for word in line[line.index("run") + 1 :] if word != "--"]
        while line and line[0].startswith("-"):
            line.pop(0)
    if line and line[0].startswith("python"):
        line = line[2 if line[1:2] == ["-m"] else 1 :]
    name = os.path.basename(line[0]) if line else ""
    return (name, line[1:]) if name in WORKER_PROGRAMS else None


def count_workers(name: str, words: Sequence[str], env: Mapping[str, str]) -> str:
    """Return how many worker processes a program of WORKER_PROGRAMS starts: a number or another word.

    `words` are its arguments. Returns "" if it starts none, or one.
    """
    program = WORKER_PROGRAMS[name]
    if program.subcommand not in ("", *words) or _find_value(program.pool, words) in program.threads:
        return ""
    workers = _find_value(program.options, words) or env.get(program.variable, "") or program.default
    workers = workers.partition(",")[0]  # celery --autoscale MAX,MIN
    is_unknown = program.runs_jobs and not workers.isdecimal()
    return "" if is_unknown or workers in ("0", "1") else workers


def _find_value(options: Sequence[str], words: Sequence[str]) -> str:
    """Return the last value of an option: `-w 4`, `-w4`, `--workers=4`; "" without the option."""
    value = ""
    for position, word in enumerate(words):
        for option in options:
            is_short = len(option) == 2
            if word == option:
                value = "".join(words[position + 1 : position + 2])
            elif word.startswith(option if is_short else f"{option}="):
                value = word[len(option) + (not is_short) :]
    return value
