"""The values of --vary, read by the readers of the options that they are for, and candidates as words."""

from collections.abc import Iterable, Iterator, Mapping

from ompbind.bench.candidates import VariedText, parse_variation
from ompbind.cli.option import FALSE_WORDS, TRUE_WORDS, Given, Option, Sources, ValueLevel
from ompbind.cli.suggestions import suggest_value
from ompbind.cli.verbs import CONFIGURATION
from ompbind.errors import OptionError, PositionError, RequestError
from ompbind.text import suggest_name

NONE = "none"
"""The value that resets an option, unless the option has such a value."""

_FIXED = {
    "topology": "all candidates run on this machine",
    "run-id": "it names a run and changes no placement",
    "expect": "it only warns and changes no placement",
    "strict": "it only checks and changes no placement",
}
"""Planning options that cannot be varied, and why; options of the section CONFIGURATION have one reason."""


def check_variations(sources: Sources) -> None:
    """Check all values of --vary.

    Raises PositionError for an option that cannot be varied and for a value that its option does not accept,
    RequestError for an option that is varied twice, unless it is a list.
    """
    seen: set[str] = set()
    for given in sources.effective.get("vary", ()):
        if given.value is None:
            continue
        text = str(given.value)
        try:
            option = _check_text(text, sources.options)
        except PositionError as error:
            error.message = f"{given.place}: {error.message}"
            raise
        if option.key in seen and not option.multiple:
            hint = f"write all values in one --vary {option.key}=V1,V2"
            raise RequestError(f"{given.place}: {option.key} is varied twice", hint=hint)
        seen.add(option.key)


def _check_text(text: str, options: Mapping[str, Option]) -> Option:
    """Return the option of a text of --vary; raises PositionError."""
    varied = parse_variation(text)
    try:
        option = find_varied(varied[0].key, options)
    except OptionError as error:
        span = (0, len(text.partition("=")[0]))
        raise PositionError(error.message, text=text, span=span, hint=error.hint) from None
    for value in varied:
        _check_value(option, value, text)
    return option


def _check_value(option: Option, value: VariedText, text: str) -> None:
    """Raise PositionError for a value that its option does not accept."""
    start, stop = value.span
    hint = ""
    try:
        make_choice_words((option.key, value.text), {option.name: option})
        return
    except PositionError as error:
        start, stop = (start + error.span[0], start + error.span[1])
        message, hint = error.message, error.hint
    except OptionError as error:
        message = error.message
        hint = error.hint or suggest_value(option.names[0], value.text, option.words)
    raise PositionError(f"{option.key}: {message}", text=text, span=(start, stop), hint=hint)


def find_varied(key: str, options: Mapping[str, Option]) -> Option:
    """Return the option that --vary names; raises OptionError for others than planning options."""
    option = options.get(key.replace("-", "_"))
    if option is None or option.key != key or "plan" not in option.verbs:
        keys = [option.key for option in options.values() if not _find_reason(option)]
        near = suggest_name(key.removeprefix("--").replace("_", "-"), keys)
        hint = f"did you mean {near}?" if near else f"use one of {', '.join(keys)}"
        raise OptionError(f"{key!r} is not the long name of an option that decides a placement", hint=hint)
    reason = _find_reason(option)
    if reason:
        raise OptionError(f"{option.long_name} cannot be varied: {reason}")
    return option


def _find_reason(option: Option) -> str:
    """Return why an option cannot be varied, "" if it can be."""
    if "plan" not in option.verbs:
        return "it is the same for all candidates"
    if option.section == CONFIGURATION:
        return "its options are read before candidates are made"
    return _FIXED.get(option.key, "")


def complete_variation(text: str, options: Iterable[Option]) -> tuple[str, ...]:
    """Return what may follow a part of a text of --vary: names of options, or the words of an option."""
    key, equals, values = text.partition("=")
    varied = {option.key: option for option in options if not _find_reason(option)}
    if not equals:
        return tuple(f"{name}=" for name in varied)
    option = varied.get(key)
    if option is None:
        return ()
    before, comma, _ = values.rpartition(",")
    words = ("yes", "no") if option.is_flag else option.words
    return tuple(f"{key}={before}{comma}{word}" for word in words)


def make_choice_words(choice: tuple[str, str], options: Mapping[str, Option]) -> list[str]:
    """Return the words of the command line for one value of --vary; raises OptionError or PositionError.

    A flag has the values yes and no. `none` resets a list, and an option that has no value `none`.
    """
    key, text = choice
    option = find_varied(key, options)
    if option.is_flag:
        if text.lower() not in TRUE_WORDS + FALSE_WORDS:
            raise OptionError(f"{text!r} is not yes or no")
        return [option.long_name if text.lower() in TRUE_WORDS else option.reset_name]
    if text == NONE and (option.multiple or not _accepts(option, text)):
        return [option.reset_name]
    option.read(text)
    return [f"{option.long_name}={text}"]


def _accepts(option: Option, text: str) -> bool:
    try:
        option.read(text)
    except (OptionError, PositionError):
        return False
    return True


_OF_COMMAND = ("chdir", "wrap", "fill")
"""Options that are no planning options, but change what ranks run."""

_OF_SESSION = ("topology", "run_id")
"""Planning options that do not belong to a command line that repeats a candidate."""


def render_run_words(sources: Sources) -> tuple[str, ...]:
    """Return the words of `ompbind run` that give the same plan.

    These are the options of the command line; variables and files give theirs to `run` too.
    """
    found = (
        option
        for option in sources.options.values()
        if ("plan" in option.verbs and option.name not in _OF_SESSION) or option.name in _OF_COMMAND
    )
    return render_words(sources, found)


def render_words(sources: Sources, options: Iterable[Option]) -> tuple[str, ...]:
    """Return the words of the command line that give some options the values that they have."""
    return tuple(word for option in options for word in _render_option(option, sources))


def _render_option(option: Option, sources: Sources) -> Iterator[str]:
    """Yield the words for the occurrences that count; a reset is needed only if a lower level has a value."""
    group = [other for other in sources.options.values() if option.group and other.group == option.group]
    occurrences = [given for other in group or [option] for given in sources.occurrences[other.name]]
    has_lower = any(given.level < ValueLevel.COMMAND_LINE for given in occurrences)
    typed: list[Given] = []
    for given in sources.occurrences[option.name]:
        if given.level == ValueLevel.COMMAND_LINE:
            restarts = given.value is None or not option.multiple
            typed = [given] if restarts else [*typed, given]
    for given in typed:
        if given.value is None:
            yield from (option.reset_name,) if has_lower else ()
        else:
            yield option.long_name
            yield from (given.value,) if isinstance(given.value, str) else ()
