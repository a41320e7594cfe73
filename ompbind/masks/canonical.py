"""The canonical form of the items of a mask, and their text."""

from collections.abc import Iterable, Iterator

from ompbind.cpuset import CpuSet, range_text, render_sequence
from ompbind.masks.grammar import Item


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


def make_canonical(part: Iterable[Item]) -> Iterator[Item]:
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
