"""Command lines that click has read, for tests without processes."""

from ompbind.cli.bench import make_bench_settings
from ompbind.cli.main import load_verb
from ompbind.cli.settings import make_run_settings


def read(verb, *words):
    """Read the words between the verb and the command `true`; the context of click has the values."""
    return load_verb(verb).make_context(verb, [*words, "--", "true"])


def read_run(*words):
    """The settings of a command line of `run`."""
    return make_run_settings(read("run", *words))


def read_bench(*words):
    """The settings of a command line of `bench`, whose run is `test` unless the words name it."""
    settings = make_bench_settings(read("bench", *words))
    planning = settings.planning
    return settings.replace(planning=planning.replace(run_id=planning.run_id or "test"))
