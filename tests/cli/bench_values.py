"""The values of options of `bench`, from the words of a command line, for tests without processes."""

from ompbind.cli.click_main import make_click_command
from ompbind.cli.options.table import find_keys, find_options
from ompbind.cli.options.values import Values
from ompbind.cli.verb import check_options, read_values


def make_values(*words, verb="bench"):
    """Read the words between the verb and the command `true`."""
    command = make_click_command(verb)
    line = command.make_line(command.make_context(verb, [*words, "--", "true"]))
    values = Values(verb, find_options(verb), line.words, find_keys)
    read_values(values, line)
    check_options(command.verb, values)
    values.set_value("run_id", values["run_id"] or "test")
    return values
