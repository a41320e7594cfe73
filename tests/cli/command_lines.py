"""Command lines that click has read, for tests without processes."""

from ompbind.cli.bench import make_bench_settings
from ompbind.cli.main import load_verb


def read(verb, *words):
    """Read the words between the verb and the command `true`; the context of click has the values."""
    return load_verb(verb).make_context(verb, [*words, "--", "true"])


def read_bench(*words):
    """The settings of a command line of `bench`, whose run is `test` unless the words name it."""
    settings = make_bench_settings(read("bench", *words))
    planning = settings.planning
    return settings.replace(planning=planning.replace(run_id=planning.run_id or "test"))
