"""Mask text as a value: the grammar by which people name CPUs, and nothing about any machine.

A *mask* is text that names CPUs; per-rank *parts* are separated by `|`, *items* of a part are joined
by commas, and an item that begins with `^` takes away from the whole part (see `grammar`). Many texts mean
the same; `mask_text` writes each meaning in one way, the *canonical text*.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from ompbind.cpuset import CpuSet, range_text, sequence_texts
from ompbind.errors import MaskError
from ompbind.masks.grammar import Item, read_items, split
from ompbind.record import Record


class Word(StrEnum):
    """A mask that is one word."""

    AUTO = "auto"
    NONE = "none"


class Mask(Record):
    """A whole mask: one tuple of items for each part, or a single word and no part."""

    text: str
    parts: tuple[tuple[Item, ...], ...] = ()
    word: Word | None = None

    @property
    def meaning(self) -> "Mask":
        """The mask apart from how it is written: masks that say the same have equal meanings.

        No text and no places; in each part neighbouring numbers are one item, nothing is named twice,
        and what is taken away, numbers first, stands last.
        """
        return Mask(text="", word=self.word, parts=tuple(tuple(_meant(part)) for part in self.parts))


def parse_mask(text: str) -> Mask:
    """Read mask text; raises MaskError with the position of what does not fit the grammar.

    >>> len(parse_mask("0-3|4-7").parts)
    2
    """
    word = {"auto": Word.AUTO, "none": Word.NONE, "nobind": Word.NONE}.get(text.strip())
    if word:
        return Mask(text=text, word=word)
    try:
        parts = tuple(read_items(text, span) for span in split(text, (0, len(text)), "|"))
    except MaskError as error:
        from ompbind.masks.autocorrect import mended  # late: most masks save its 0.8 ms

        error.suggestion = mended(text)
        raise
    return Mask(text=text, parts=parts)


def mask_text(mask: Mask) -> str:
    """Write a mask in the one canonical way; read again, it means the same."""
    if mask.word is not None:
        return str(mask.word)
    return "|".join(",".join(map(item_text, part)) for part in mask.meaning.parts)


def item_text(item: Item) -> str:
    """Write one item; CPUs in an order that no range has become several."""
    sign = "^" if item.taken_away else ""
    if item.cpus:
        return ",".join(sign + piece for piece in sequence_texts(item.cpus))
    chain = (f"{one.level}:{'#' if one.by_os_number else ''}{range_text(one.numbers)}" for one in item.chain)
    return sign + (".".join(chain) or "all")


def part_fault(mask: Mask, items: tuple[Item, ...], message: str, hint: str) -> MaskError:
    """Make the error about some items of a mask, marked from the first to the last of them."""
    return MaskError(message, text=mask.text, span=(items[0].span[0], items[-1].span[1]), hint=hint)


def _meant(part: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of a part without their places, nothing twice, what is taken away at the end."""
    kept = [item for item in part if not item.taken_away]
    yield from _joined(kept) if kept else (Item(),)
    gone = [item for item in part if item.taken_away]
    numbers = CpuSet(cpu for item in gone for cpu in item.cpus)
    if numbers:
        yield Item(taken_away=True, cpus=tuple(numbers))
    yield from sorted({_bare(item) for item in gone if not item.cpus}, key=item_text)


def _joined(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items with neighbouring numbers joined, and without what an earlier item names as well."""
    seen: set[int | Item] = set()
    run: dict[int, None] = {}
    for item in items:
        run.update((cpu, None) for cpu in item.cpus if cpu not in seen)
        bare = _bare(item)
        if not item.cpus and bare not in seen:
            if run:
                yield Item(cpus=tuple(run))
            seen.update(run, (bare,))
            run = {}
            yield bare
    if run:
        yield Item(cpus=tuple(run))


def _bare(item: Item) -> Item:
    """Return an item without its places in the text."""
    chain = tuple(selector.replace(span=(0, 0)) for selector in item.chain)
    return item.replace(span=(0, 0), chain=chain)
