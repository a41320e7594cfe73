"""Command lines that run in the process of a test, and start no other process."""

import io
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from ompbind.bench.verb import make_bench_settings
from ompbind.cli import LAUNCHING
from ompbind.cli.main import load_verb, print_error, run_words
from tests.live.conftest import clean_environment


def read(verb, *words):
    """Read the words between the verb and the command `true`; the context of click has the values."""
    return load_verb(verb).make_context(verb, [*words, "--", "true"])


def read_bench(*words):
    """The settings of a command line of `bench`, whose run is `test` unless the words name it."""
    settings = make_bench_settings(read("bench", *words))
    planning = settings.planning
    return settings.replace(planning=planning.replace(run_id=planning.run_id or "test"))


def call(*args, **env):
    """Run ompbind; a verb that starts ranks must fail before that. Returns what a finished process has."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2))
    with (
        patch.dict(os.environ, clean_environment(**env), clear=True),
        patch("os.fork", side_effect=AssertionError("a rank would be started")),
        patch("os.dup2"),  # after an error of the output
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            code = run_words(args)
        except SystemExit as end:  # after a completion
            code = end.code
        except Exception as error:
            code = print_error(error, launching=bool(args) and args[0] in LAUNCHING)
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return subprocess.CompletedProcess(args, code, *texts)
