"""`ompbind help`: the help of ompbind, or of a verb."""

from ompbind.cli import VERBS
from ompbind.cli.main import run_words
from ompbind.cli.option import VerbContext
from ompbind.cli.verb import Verb
from ompbind.errors import OptionError

EXAMPLES = (("All verbs", "ompbind help"), ("The options of run", "ompbind help run"))


def show_help(ctx: VerbContext) -> int:
    """Show the help of ompbind or of a verb."""
    words: tuple[str, ...] = ctx.params["words"]
    if len(words) > 1:
        raise OptionError("help is for one verb at a time", hint=f"write 'ompbind help {words[0]}'")
    return run_words([*words, "--help"])


VERB = Verb(
    "help",
    show_help,
    summary="Show the help of ompbind or of a verb.",
    page="README.md",
    examples=EXAMPLES,
    words="verb",
    complete_word=lambda _: VERBS,
)
