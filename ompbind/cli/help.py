"""`ompbind help`: the help of ompbind, or of a verb."""

from ompbind.cli.description import Description
from ompbind.cli.options.values import Values
from ompbind.cli.verb import Verb
from ompbind.cli.verbs import VERBS
from ompbind.errors import OptionError

EXAMPLES = (
    ("All verbs", "ompbind help"),
    ("The options of run", "ompbind help run"),
)


def _show_help(options: Values) -> int:
    """Print the help of a verb, or of ompbind if no verb is given."""
    from ompbind.cli.click_main import run_with_click  # late: it imports this module

    if len(options.words) > 1:
        raise OptionError("help is for one verb at a time", hint=f"write 'ompbind help {options.words[0]}'")
    return run_with_click([*options.words, "--help"])


VERB = Verb(
    name="help",
    run=_show_help,
    describe=lambda: Description(
        help="Show the help of ompbind or of a verb.",
        summary="Show the help of ompbind or of a verb.",
        examples=EXAMPLES,
    ),
    words="verb",
    complete_word=lambda _: VERBS,
)
