"""`Words`: classes whose members are a few words, each of which is a value of its own.

They are what `enum.StrEnum` makes, and type checkers treat them as such. Made here because an enumeration
takes six times as long to define, and starting a rank needs ten of them (`make bench` measures both);
records are made here for the same reason.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

__all__ = ["Words"]

if TYPE_CHECKING:
    from enum import StrEnum as Words
else:

    class _WordsType(type):
        """Makes a member of every text in the body of a class, in order."""

        def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            texts = {key: value for key, value in body.items() if key.isupper()}
            rest = {key: value for key, value in body.items() if key not in texts}
            made = super().__new__(mcs, name, bases, {"__slots__": (), **rest})
            members = {text: str.__new__(made, text) for text in texts.values()}
            for key, text in texts.items():
                type.__setattr__(made, key, members[text])
            type.__setattr__(made, "_members", members)
            return made

        def __call__(cls, text: str) -> Any:
            """Return the member that a text is; raises ValueError."""
            try:
                return cls._members[text]
            except (KeyError, TypeError):
                raise ValueError(f"{text!r} is not a valid {cls.__name__}") from None

        def __iter__(cls) -> Iterator[Any]:
            return iter(cls._members.values())

        def __len__(cls) -> int:
            return len(cls._members)

        def __contains__(cls, text: object) -> bool:
            return isinstance(text, str) and text in cls._members

        def __setattr__(cls, name: str, value: object) -> None:
            raise AttributeError(f"{cls.__name__} is what it is: cannot set {name}")

    class Words(str, metaclass=_WordsType):
        """The base of all such classes."""

        @property
        def value(self) -> str:
            """The text."""
            return str(self)

        @property
        def name(self) -> str:
            """The name of the member in its class."""
            return next(key for key, one in vars(type(self)).items() if one is self)

        def __repr__(self) -> str:
            return f"{type(self).__name__}.{self.name}"

        def __reduce__(self) -> tuple[object, tuple[str]]:
            return type(self), (str(self),)

        def __copy__(self) -> Self:
            return self

        def __deepcopy__(self, memo: object) -> Self:
            return self
