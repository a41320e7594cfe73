"""Mask text as a value: the grammar that names CPUs, independent of any machine.

A *mask* is text that names CPUs. `|` separates the *parts* of the ranks, commas separate the *items* of a
part, and an item that begins with `^` excludes its CPUs from the whole part (see `grammar`). Several texts
can mean the same; `mask_text` writes each meaning in one way, the *canonical text*.
"""

from collections.abc import Iterable, Iterator

from ompbind.cpuset import CpuSet, range_text, render_sequence
from ompbind.enums import WordEnum
from ompbind.errors import MaskError
from ompbind.masks.grammar import Item, read_items, split_span
from ompbind.record import Record


class MaskWord(WordEnum):
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
    def canonical(self) -> "Mask":
        """The mask in canonical form: masks with the same meaning have equal canonical forms.

        It has no text and no positions. In each part adjacent numbers are one item, nothing is named twice,
        and exclusions are last, those by number first.
        """
        return Mask(
            text="", word=self.word, parts=tuple(tuple(_canonical_items(part)) for part in self.parts)
        )


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
        from ompbind.masks.autocorrect import correct_mask  # late: saves 0.8 ms where the mask is valid

        error.suggestion = correct_mask(text)
        raise
    return Mask(text=text, parts=parts)


def mask_text(mask: Mask) -> str:
    """Return the canonical text of a mask; parsed again, it means the same."""
    if mask.word is not None:
        return str(mask.word)
    return "|".join(",".join(map(item_text, part)) for part in mask.canonical.parts)


def item_text(item: Item) -> str:
    """Return the text of one item; CPUs that no single range can name become several items."""
    prefix = "^" if item.excluded else ""
    if item.cpus:
        return ",".join(prefix + piece for piece in render_sequence(item.cpus))
    selectors = (
        f"{selector.level}:{'#' if selector.by_os_number else ''}{range_text(selector.numbers)}"
        for selector in item.chain
    )
    return prefix + (".".join(selectors) or "all")


def part_error(mask: Mask, items: tuple[Item, ...], message: str, hint: str) -> MaskError:
    """Make an error about some items of a mask that marks the first to the last of them."""
    return MaskError(message, text=mask.text, span=(items[0].span[0], items[-1].span[1]), hint=hint)


def _canonical_items(part: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of a part without positions and repetitions, exclusions last."""
    included = [item for item in part if not item.excluded]
    yield from _merge(included) if included else (Item(),)
    excluded = [item for item in part if item.excluded]
    numbers = CpuSet(cpu for item in excluded for cpu in item.cpus)
    if numbers:
        yield Item(excluded=True, cpus=tuple(numbers))
    yield from sorted({_without_spans(item) for item in excluded if not item.cpus}, key=item_text)


def _merge(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items with adjacent CPU lists merged, without anything that an earlier item names too."""
    named: set[int | Item] = set()
    run: dict[int, None] = {}
    for item in items:
        run.update((cpu, None) for cpu in item.cpus if cpu not in named)
        chain_item = _without_spans(item)
        if not item.cpus and chain_item not in named:
            if run:
                yield Item(cpus=tuple(run))
            named.update(run, (chain_item,))
            run = {}
            yield chain_item
    if run:
        yield Item(cpus=tuple(run))


def _without_spans(item: Item) -> Item:
    """Return an item without its positions in the text."""
    chain = tuple(selector.replace(span=(0, 0)) for selector in item.chain)
    return item.replace(span=(0, 0), chain=chain)
