"""`WordEnum` and `NumberEnum`: enums that are defined quickly.

They are like `StrEnum` and `IntEnum`, and type checkers treat them as these. But the import of `enum`, and
the definition of the enums that a start of ranks needs, take a fifteenth of the time of that start.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator
    from enum import IntEnum, StrEnum

    class WordEnum(StrEnum):
        """For type checkers: an enum of words."""

    class NumberEnum(IntEnum):
        """For type checkers: an enum of numbers."""

else:

    class _EnumType(type):
        """Makes one member of each value in a class body: of each word or number, or tuple for `__new__`."""

        def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, object]) -> _EnumType:
            values = {
                key: value
                for key, value in body.items()
                if isinstance(value, str | int | tuple) and not key.startswith("_")
            }
            kept = {key: value for key, value in body.items() if key not in values}
            made = super().__new__(mcs, name, bases, kept)
            made.by_value = {}
            for key, value in values.items():
                member = made.__new__(made, *(value if isinstance(value, tuple) else (value,)))
                member.name = key
                made.by_value[member] = member
                setattr(made, key, member)
            return made

        def __call__(cls, value: object) -> object:
            """Return the member with a value; raises ValueError."""
            member = cls.by_value.get(value)
            if member is None:
                raise ValueError(f"{value!r} is not a valid {cls.__name__}")
            return member

        def __iter__(cls) -> Iterator[object]:
            return iter(cls.by_value)

        def __reversed__(cls) -> Iterator[object]:
            return reversed(cls.by_value)

        def __len__(cls) -> int:
            return len(cls.by_value)

        def __contains__(cls, value: object) -> bool:
            return value in cls.by_value

    class WordEnum(str, metaclass=_EnumType):
        """An enum of words: its members are texts, in the order of their definition."""

        @property
        def value(self) -> str:
            """The word as plain text."""
            return str(self)

        def __reduce__(self) -> tuple[object, tuple[str]]:
            return type(self), (self.value,)

    class NumberEnum(int, metaclass=_EnumType):
        """An enum of numbers: its members can be compared."""

        @property
        def value(self) -> int:
            """The plain number."""
            return int(self)

        def __reduce__(self) -> tuple[object, tuple[int]]:
            return type(self), (self.value,)
