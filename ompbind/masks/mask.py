"""Mask text as a value: the grammar that names CPUs, independent of any machine.

A *mask* is text that names CPUs. `|` separates the *parts* of the ranks, commas separate the *items* of a
part, and an item that begins with `^` excludes its CPUs from the whole part (see `grammar`). Several texts
can mean the same; `mask_text` writes each meaning in one way, the *canonical text*.
"""

from __future__ import annotations

from enum import StrEnum

from ompbind.errors import MaskError
from ompbind.masks.autocorrect import correct_mask
from ompbind.masks.canonical import item_text, make_canonical
from ompbind.masks.grammar import Item, read_items, split_span
from ompbind.record import Record


class MaskWord(StrEnum):
    """A mask that is a single word."""

    AUTO = "auto"
    NONE = "none"


MASK_WORDS = {"auto": MaskWord.AUTO, "none": MaskWord.NONE, "nobind": MaskWord.NONE}
"""The masks that name no CPUs, and what they mean."""


class Mask(Record):
    """A whole mask: one tuple of items for each part, or a single `word` and no part."""

    text: str
    parts: tuple[tuple[Item, ...], ...] = ()
    word: MaskWord | None = None

    @property
    def canonical(self) -> Mask:
        """The mask in canonical form: masks with the same meaning have equal canonical forms.

        It has no text and no positions. In each part adjacent numbers are one item, nothing is named twice,
        and exclusions are last, those by number first.
        """
        parts = tuple(tuple(make_canonical(part)) for part in self.parts)
        return Mask(text="", word=self.word, parts=parts)


def parse_mask(text: str) -> Mask:
    """Read mask text; raises MaskError with the position of the first error.

    >>> len(parse_mask("0-3|4-7").parts)
    2
    """
    word = MASK_WORDS.get(text.strip())
    if word:
        return Mask(text=text, word=word)
    try:
        parts = tuple(read_items(text, span) for span in split_span(text, (0, len(text)), "|"))
    except MaskError as error:
        error.suggestion = correct_mask(text)
        raise
    return Mask(text=text, parts=parts)


def mask_text(mask: Mask) -> str:
    """Return the canonical text of a mask; parsed again, it means the same."""
    if mask.word is not None:
        return str(mask.word)
    return "|".join(",".join(map(item_text, part)) for part in mask.canonical.parts)


def part_error(mask: Mask, items: tuple[Item, ...], message: str, hint: str) -> MaskError:
    """Make an error about some items of a mask that marks the first to the last of them."""
    return MaskError(message, text=mask.text, span=(items[0].span[0], items[-1].span[1]), hint=hint)
