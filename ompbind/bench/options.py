"""The options of `bench` that no other verb has: what varies, what is measured, and where results go.

The values of --vary are read by the readers of the options that they are for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ompbind.bench.candidates import parse_variation
from ompbind.bench.comparing import MAX_ROUNDS
from ompbind.bench.export import EXPORTS
from ompbind.bench.metrics import read_pattern
from ompbind.cli import COMPARING, CONFIGURATION, MEASURING, OUTPUT
from ompbind.cli.checks import CONTRADICT, Check
from ompbind.cli.option import FALSE_WORDS, FILES, TRUE_WORDS, Given, Option, Sources, ValueLevel
from ompbind.cli.options import PLANNING_OPTIONS
from ompbind.cli.readers import at_least, name_of, one_of, read_seconds
from ompbind.cli.settings import Settings
from ompbind.cli.suggestions import suggest_word
from ompbind.errors import OptionError, PositionError, RequestError
from ompbind.record import Record
from ompbind.text import suggest_name, whole_number


class BenchSettings(Record):
    """The options of `bench` that no other verb has, beside its `planning` settings, which have the others.

    `parse_again` returns the settings of the same command line with more options after its own, of each
    group. `command` has all words after the first `--`.
    """

    planning: Settings
    command: tuple[str, ...]
    parse_again: Callable[[Sequence[Sequence[str]]], "BenchSettings"]
    vary: tuple[tuple[str, tuple[str, ...]], ...]
    max_rounds: int | None
    budget: float | None
    matters: float
    seed: int | None
    metric: tuple[str, ...]
    higher: bool
    results: str | None
    show: bool
    fail_above: float | None
    export: tuple[tuple[str, str], ...]


NONE = "none"  # the value that resets an option, unless the option has such a value

_FIXED = ("topology", "run-id", "expect", "strict", "name")  # planning options that cannot be varied


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
    """Return the option of a text of --vary; raises PositionError, also for a value that it refuses."""
    key, values = parse_variation(text)
    try:
        option = find_varied(key, options)
    except OptionError as error:
        span = (0, len(text.partition("=")[0]))
        raise PositionError(error.message, text=text, span=span, hint=error.hint) from None
    for value, (start, stop) in values.items():
        try:
            make_choice_words((option.key, value), {option.name: option})
        except (PositionError, OptionError) as error:
            hint = error.hint
            if isinstance(error, PositionError):
                start, stop = start + error.span[0], start + error.span[1]
            elif word := suggest_word(value, option.words):
                hint = hint or f"did you mean '{word}'?"
            message = f"{option.key}: {error.message}"
            raise PositionError(message, text=text, span=(start, stop), hint=hint) from None
    return option


def find_varied(key: str, options: Mapping[str, Option]) -> Option:
    """Return the option that --vary names; raises OptionError for others than planning options."""
    option = options.get(key.replace("-", "_"))
    if option is None or option.key != key or "plan" not in option.verbs:
        keys = [option.key for option in options.values() if not _find_reason(option)]
        short = (option.key for option in options.values() if f"-{key}" in option.names)
        near = next((key for key in short if key in keys), "") or suggest_name(key.replace("_", "-"), keys)
        hint = f"did you mean {near}?" if near else f"use one of {', '.join(keys)}"
        raise OptionError(f"{key!r} is not the long name of an option that decides a placement", hint=hint)
    reason = _find_reason(option)
    if reason:
        raise OptionError(f"{option.long_name} cannot be varied: {reason}")
    return option


def _find_reason(option: Option) -> str:
    if "plan" not in option.verbs:
        return "it is the same for all candidates"
    if option.section == CONFIGURATION:
        return "its options are read before candidates are made"
    return "it changes no placement on this machine" if option.key in _FIXED else ""


def _complete_variation(text: str) -> tuple[str, ...]:
    """Return what may follow a part of a text of --vary: names of options, or the words of an option."""
    key, equals, values = text.partition("=")
    varied = {option.key: option for option in PLANNING_OPTIONS if not _find_reason(option)}
    if not equals:
        return tuple(f"{name}=" for name in varied)
    before, comma, _ = values.rpartition(",")
    words = () if key not in varied else ("yes", "no") if varied[key].is_flag else varied[key].words
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
    if text == NONE and option.multiple:
        return [option.reset_name]
    try:
        option.read(text)
    except (OptionError, PositionError):
        if text != NONE:
            raise
        return [option.reset_name]
    return [f"{option.long_name}={text}"]


_OF_COMMAND = ("chdir", "wrap", "fill", "hold")  # no planning options, but they change what ranks run
_OF_GROUP = ("ready", "ready_timeout", "until")  # the same in a run with groups

_OF_SESSION = ("topology", "run_id")
"""Planning options that do not belong to a command line that repeats a candidate."""


def render_run_words(sources: Sources) -> tuple[str, ...]:
    """Return the words of `ompbind run` that give the same plan.

    These are the options of the command line; variables and files give theirs to `run` too.
    """
    found = (
        option
        for option in sources.options.values()
        if ("plan" in option.verbs and option.name not in _OF_SESSION)
        or option.name in _OF_COMMAND
        or (option.name in _OF_GROUP and sources.is_given("name"))
    )
    return render_words(sources, found)


def render_words(sources: Sources, options: Iterable[Option]) -> tuple[str, ...]:
    """Return the words of the command line that give some options the values that they have."""
    return tuple(word for option in options for word in _render_option(option, sources))


def _render_option(option: Option, sources: Sources) -> Iterator[str]:
    """Yield the words for the occurrences that count; a reset is needed only if a lower level has a value."""
    known, word = sources.options.values(), option.spellings
    same = [other for other in known if word and other.spellings == word]
    occurrences = [given for other in same or [option] for given in sources.occurrences[other.name]]
    has_lower = any(given.level < ValueLevel.COMMAND_LINE for given in occurrences)
    typed: list[Given] = []
    for given in sources.occurrences[option.name]:
        if given.level == ValueLevel.COMMAND_LINE:
            restarts = given.value is None or not option.multiple
            typed = [given] if restarts else [*typed, given]
    for given in typed:
        if given.value is None:
            yield from (option.reset_name,) if has_lower else ()
        elif option.bare is not None:  # its value can be omitted
            yield f"{option.long_name}={given.value}".removesuffix("=")
        else:
            yield option.long_name
            yield from (given.value,) if isinstance(given.value, str) else ()


SHOWING = ("show", "fail_above", "export", "force", "format", "quiet", "verbose", "config", "preset")
"""Options that have an effect with --show; the last two choose files with defaults for the others."""


def _read_variation(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read --vary OPTION=V1,V2 as the only item; the values are checked where candidates are made."""
    if text.startswith("-"):
        raise OptionError("write the long name without dashes: --vary threads=1,2")
    key, values = parse_variation(text)
    return ((key, tuple(values)),)


def _read_time(text: str) -> float:
    seconds = read_seconds(text)
    if not seconds:
        raise OptionError("the time must be longer than 0")
    return seconds


def _read_fraction(text: str) -> float:
    """Read a part of 1: "2%" or "0.02"."""
    number = text.removesuffix("%")
    is_decimal = whole_number(number.replace(".", "", 1)) is not None
    fraction = float(number) / (100 if number != text else 1) if is_decimal else -1.0
    if not 0 <= fraction < 1:
        raise OptionError(f"{text!r} is not a number below 1 or a percentage below 100%: write 2% or 0.02")
    return fraction


def _read_export(text: str) -> tuple[tuple[str, str], ...]:
    """Read FORMAT or FORMAT=FILE as the only item; the file is "" for standard output."""
    name, equals, path = text.partition("=")
    if equals and not path:
        raise OptionError("the name of a file is missing")
    return ((one_of(EXPORTS)(name), path),)


_comparing = partial(Option, section=COMPARING, verbs=("bench",))
_measuring = partial(Option, section=MEASURING, verbs=("bench",))
_output = partial(Option, section=OUTPUT, verbs=("bench",), is_setting=False)

BENCH_OPTIONS = (
    _comparing("--vary", read=_read_variation, multiple=True, whole_run=False, metavar="OPTION=V,V",
        complete=_complete_variation, everyday=True, default_help="a choice",
        help="Compare values of an option: smt=1,2 or 'mask=0,2;1,3'; several: all combinations"),
    _comparing("--max-rounds", read=at_least(1, MAX_ROUNDS), number=True, metavar="N",
        default_help="40; 1000 with --budget", help="Rounds at most (8 to 1000); a clear result needs fewer"),
    _comparing("--budget", read=_read_time, number=True, metavar="TIME", everyday=True,
        default_help="when decided", help="Stop after TIME (90, 10m)"),
    _comparing("--matters", read=_read_fraction, default="2%", number=True, metavar="PART",
        help="A smaller difference does not matter: 2% or 0.02"),
    _comparing("--seed", read=at_least(0), number=True, metavar="N", is_setting=False, default_help="random",
        help="Seed of the random order within rounds"),
    _measuring("--metric", read=lambda text: (read_pattern(text).pattern,), multiple=True, metavar="REGEX",
        everyday=True, default_help="wall time of the slowest rank",
        help="Compare a number in the output, of the slowest rank: 'time: ([0-9.]+)'"),
    _measuring("--higher", flag=True, everyday=True,
        help="Higher values of --metric are better, and are added up over ranks"),
    _output("--format", words=("table", "jsonl"), default="table",
        help="Standard output: {words}; jsonl: a line for each event of the session"),
    _output("--results", read=name_of("a file"), metavar="FILE", complete=FILES, everyday=True,
        help="Append each run to FILE, and resume from it, also with more --max-rounds"),
    _output("--show", flag=True, everyday=True, help="Show sessions, compare several: --show FILE..."),
    _output("--fail-above", read=_read_fraction, number=True, metavar="PART",
        help="With --show, exit code 1 if the last session is slower than the first by more than PART"),
    _output("--export", read=_read_export, multiple=True, metavar="FORMAT", everyday=True,
        words=tuple(EXPORTS),
        help="Write results: json (also for scripts of hyperfine), csv (a row for each run), markdown, svg"
             " (the table as a picture); FORMAT=FILE: not to standard output"),
)  # fmt: skip


def _name_file(values: Mapping[str, Any]) -> str:
    unnamed = [name for name, path in values["export"] if not path]
    return f"name a file: --export {unnamed[-1]}=FILE"


CHECKS = (
    Check(option="show", other="dry_run", when=lambda v: v["dry_run"], text=CONTRADICT),
    Check(option="higher", other="metric", when=lambda v: not v["metric"],
          text="has no effect without --metric",
          hint="name the number in the output with --metric REGEX"),
    Check(option="fail_above", other="show", when=lambda v: not v["show"],
          text="has no effect without --show",
          hint="write both sessions with --results, then 'ompbind bench --show --fail-above 5% OLD NEW'"),
    Check(option="export", other="export", when=lambda v: sum(not path for _, path in v["export"]) > 1,
          text="writes several formats to standard output", hint=_name_file),
    Check(option="export", other="format", hint=_name_file, text="and {other} write to standard output",
          when=lambda v: v["format"] != "table" and any(not path for _, path in v["export"])),
    Check(option="force", other="export", when=lambda v: not any(path for _, path in v["export"]),
          text="needs --export FORMAT=FILE", hint="--force overwrites the files of --export only"),
    Check(option="export", other="dry_run", when=lambda v: v["dry_run"], warning=True),
)  # fmt: skip
"""Options of `bench` that have no effect because of another option."""
