"""Hypothesis strategies for masks: values of the whole grammar, each with a text that means it."""

from hypothesis import strategies as st

LEVELS = ("drawer", "book", "package", "node", "die", "l3", "l2", "core")
spaces = st.sampled_from(["", "", "", "", " ", "  ", "\t", "\n"])
numbers = st.integers(0, 40)


@st.composite
def ranges(draw):
    """Draw a number, range, stride or kernel stride: its text, and the numbers it names."""
    low, length = draw(numbers), draw(st.integers(0, 12))
    width = draw(st.integers(1, 4))
    step = width + draw(st.integers(0, 4))
    start, stop = "0" * draw(st.integers(0, 2)) + str(low), str(low + length)
    strided = tuple(low + i for i in range(length + 1) if i % step < width)
    forms = [
        (start, (low,)),
        (f"{start}-{stop}", tuple(range(low, low + length + 1))),
        (f"{start}-{stop}:{step}", tuple(range(low, low + length + 1, step))),
        (f"{start}-{stop}:{width}/{step}", strided),
    ]
    return draw(st.sampled_from(forms))


@st.composite
def hexes(draw):
    """Draw a hexadecimal mask, in one word or in the kernel's words of 32 bits: its text and CPUs."""
    cpus = tuple(sorted(draw(st.sets(st.integers(0, 70), min_size=1, max_size=8))))
    bits = sum(1 << cpu for cpu in cpus)
    forms = [[f"{bits:x}"], [f"{bits >> 32:x}", f"{bits & 0xFFFFFFFF:08x}"], [f"{bits:X}"]]
    words = draw(st.sampled_from(forms))
    return draw(st.sampled_from(["0x", "0X"])) + f"{draw(spaces)},{draw(spaces)}".join(words), cpus


@st.composite
def chains(draw):
    """Draw one to three selectors: their text, and for each (level, numbers, by OS number)."""
    texts, chain = [], []
    for _ in range(draw(st.integers(1, 3))):
        level, prefix = draw(st.sampled_from(LEVELS)), draw(st.sampled_from(["", "", "#"]))
        text, named = draw(ranges())
        texts.append(f"{level}:{prefix}{text}")
        chain.append((level, named, bool(prefix)))
    return f"{draw(spaces)}.{draw(spaces)}".join(texts), tuple(chain)


@st.composite
def items(draw):
    kind = draw(st.sampled_from(["range", "range", "hex", "chain", "all"]))
    text, cpus, chain = "all", (), ()
    if kind == "range":
        text, cpus = draw(ranges())
    elif kind == "hex":
        text, cpus = draw(hexes())
    elif kind == "chain":
        text, chain = draw(chains())
    excluded = draw(st.sampled_from([False, False, True]))
    return (f"^{draw(spaces)}{text}" if excluded else text), (excluded, cpus, chain)


@st.composite
def masks(draw, max_parts=3):
    texts, values = [], []
    for _ in range(draw(st.integers(1, max_parts))):
        part = draw(st.lists(items(), min_size=1, max_size=4))
        texts.append(",".join(f"{draw(spaces)}{text}{draw(spaces)}" for text, _ in part))
        values.append([value for _, value in part])
    return "|".join(texts), values


@st.composite
def broken(draw):
    """Draw the text of a mask with up to four edits (delete, insert, swap); it may still be valid."""
    characters = list(draw(masks())[0])
    inserted = [*"0123456789-,|^:./#xafn !;–\x1b", "99999", "socket:", "auto", "0x", "node"]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(characters)))
        kind = draw(st.sampled_from(["delete", "insert", "swap"]))
        if kind == "delete":
            del characters[at : at + draw(st.integers(1, 3))]
        elif kind == "insert":
            characters[at:at] = draw(st.sampled_from(inserted))
        else:
            characters[at : at + 2] = characters[at : at + 2][::-1]
    return "".join(characters)
