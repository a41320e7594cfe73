"""The values of all options of a verb, found from all occurrences of the options.

Occurrences come from files, presets, variables and the command line. Of a scalar the last one counts, of a
list all after its last reset. A value that a higher level replaces is not read, so it may be wrong.
"""

from __future__ import annotations

from _collections_abc import Mapping  # `collections.abc` imports all of `collections`

from ompbind.cli.options.option import Given, Option, Precedence, Source
from ompbind.errors import MaskError, OmpbindError, OptionError, PositionError
from ompbind.planning.configuration import Configuration

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, TypeAlias

FindKeys: TypeAlias = "Callable[[], Mapping[str, Option]]"

_DEFAULT = Source(level=Precedence.DEFAULT, name="")

TRUE_WORDS = ("1", "true", "t", "yes", "y", "on")
FALSE_WORDS = ("0", "false", "f", "no", "n", "off")


class Values(Mapping[str, "Any"]):
    """The values of the options of a verb by name, where they come from, and the words after the options.

    `verb` is the name of the verb. `sources` has one source for each item of a list, the highest last.
    `find_keys` returns the options of all verbs that configuration files can contain, by key.
    `configuration` are the configuration files that were read. `occurrences` are all occurrences of options,
    the lowest level first, replaced ones too.
    """

    def __init__(
        self, verb: str, options: Iterable[Option], words: Sequence[str] = (), find_keys: FindKeys = dict
    ) -> None:
        self.verb = verb
        self.find_keys = find_keys
        self.options = {option.name: option for option in options}
        self.words = tuple(words)
        self.configuration = Configuration()
        self.occurrences: tuple[Given, ...] = ()
        self._values: dict[str, Any] = {}
        self._givens: dict[str, tuple[Given, ...]] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            self._values[name] = self.options[name].default_value
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.options)

    def __len__(self) -> int:
        return len(self.options)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an option, `default` if the verb has no such option."""
        return self[name] if name in self.options else default

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that are given anywhere."""
        return tuple(name for name, givens in self._givens.items() if givens)

    def sources(self, name: str) -> tuple[Source, ...]:
        """Return where the value comes from; one source, or one for each occurrence of a list."""
        return tuple(given.source for given in self.givens(name)) or (_DEFAULT,)

    def givens(self, name: str) -> tuple[Given, ...]:
        """Return the occurrences that make the value, or the occurrence that resets it; none by default."""
        return self._givens.get(name, ())

    def source(self, name: str) -> Source:
        """Return where the value comes from; of a list, the source with the highest level."""
        return self.sources(name)[-1]

    def is_given(self, name: str) -> bool:
        """Return whether the option is given anywhere."""
        return self.source(name).level > Precedence.DEFAULT

    def text(self, name: str) -> str:
        """Return the text from which the value was read; "" for a flag, or if there is no value."""
        if name not in self._givens:
            return self.options[name].default or ""
        return ",".join(given.value for given in self.givens(name) if isinstance(given.value, str))

    def set_value(self, name: str, value: Any, givens: Sequence[Given] = ()) -> None:
        """Set the value of an option that these occurrences give, the last one with the highest level."""
        self._values[name] = value
        self._givens[name] = tuple(givens)

    def reset(self, name: str) -> None:
        """Reset an option to its default, as if it was not given."""
        self._values.pop(name, None)
        self._givens.pop(name, None)


def resolve_values(values: Values, givens: Iterable[Given], *, lenient: bool = False) -> None:
    """Read the values of options from their occurrences, the lowest level first.

    Raises OptionError or PositionError for a wrong value; with `lenient` it counts as not given.
    """
    found: dict[str, list[Given]] = {}
    for given in givens:
        found.setdefault(given.option.name, []).append(given)
    found = _drop_reset(found)
    for name, option in values.options.items():
        occurrences = found.get(name)
        if not occurrences:
            continue
        counting = _find_counting(option, occurrences)
        try:
            read = [_read(given, values) for given in counting]
        except OmpbindError:
            if not lenient:
                raise
            continue
        values.set_value(name, _join(option, read), counting or occurrences[-1:])


def _drop_reset(found: dict[str, list[Given]]) -> dict[str, list[Given]]:
    """Drop occurrences of options if another option of the same group is reset at a higher level."""
    resets: dict[str, Precedence] = {}
    for occurrences in found.values():
        for given in occurrences:
            group = given.option.group
            if group and not given.value:
                resets[group] = max(given.source.level, resets.get(group, Precedence.DEFAULT))
    if not resets:
        return found
    return {
        name: [given for given in occurrences if given.source.level >= resets.get(given.option.group, 0)]
        for name, occurrences in found.items()
    }


def _find_counting(option: Option, occurrences: Sequence[Given]) -> Sequence[Given]:
    """Return the occurrences that make the value; none after a reset."""
    after = next((i for i in range(len(occurrences), 0, -1) if occurrences[i - 1].value is None), 0)
    kept = occurrences[after:]
    return kept if option.repeatable else kept[-1:]


def _read(given: Given, values: Values) -> Any:
    """Read the value of an occurrence; an error names where the value comes from."""
    if given.option.flag:
        return given.value
    is_on_command_line = given.source.level == Precedence.COMMAND_LINE
    where = "/".join(given.option.names) if is_on_command_line else given.source.name
    try:
        return given.option.read(str(given.value))
    except PositionError as error:
        if isinstance(error, MaskError) and is_on_command_line:
            raise  # the position in the mask shows which text is meant
        error.message = f"{where}: {error.message}"
        raise
    except OptionError as error:
        from ompbind.cli.options.value_hints import find_hint  # late: most values are correct

        hint = error.hint or find_hint(given, values.verb, values.words, values.options)
        raise OptionError(f"{where}: {error.message}", hint=hint) from None


def _join(option: Option, read: Sequence[Any]) -> Any:
    if option.repeatable:
        return tuple(item for items in read for item in items)
    return read[0] if read else option.default_value
