"""Masks made by hypothesis: values of the whole grammar, each with a text that means it."""

from hypothesis import strategies as st

from ompbind.cpuset import CpuSet
from ompbind.machine.model import Level
from tests.machines import Shape, make_machine

LEVELS = ("drawer", "book", "package", "node", "die", "l3", "l2", "core")
blanks = st.sampled_from(["", "", "", "", " ", "  ", "\t", "\n"])
numbers = st.integers(0, 40)


@st.composite
def ranges(draw):
    """A number, range, stride or kernel stride: its text, and what it names."""
    low, length = draw(numbers), draw(st.integers(0, 12))
    width = draw(st.integers(1, 4))
    step = width + draw(st.integers(0, 4))
    start, stop = "0" * draw(st.integers(0, 2)) + str(low), str(low + length)
    return draw(
        st.sampled_from(
            [
                (start, (low,)),
                (f"{start}-{stop}", tuple(range(low, low + length + 1))),
                (f"{start}-{stop}:{step}", tuple(range(low, low + length + 1, step))),
                (
                    f"{start}-{stop}:{width}/{step}",
                    tuple(low + i for i in range(length + 1) if i % step < width),
                ),
            ]
        )
    )


@st.composite
def hexes(draw):
    """A hexadecimal mask, in one word or in the kernel's words of 32 bits."""
    cpus = tuple(sorted(draw(st.sets(st.integers(0, 70), min_size=1, max_size=8))))
    bits = sum(1 << cpu for cpu in cpus)
    words = draw(
        st.sampled_from([[f"{bits:x}"], [f"{bits >> 32:x}", f"{bits & 0xFFFFFFFF:08x}"], [f"{bits:X}"]])
    )
    return draw(st.sampled_from(["0x", "0X"])) + f"{draw(blanks)},{draw(blanks)}".join(words), cpus


@st.composite
def chains(draw):
    """One to three selectors: (level, numbers, by OS number)."""
    texts, chain = [], []
    for _ in range(draw(st.integers(1, 3))):
        level, sign = draw(st.sampled_from(LEVELS)), draw(st.sampled_from(["", "", "#"]))
        text, named = draw(ranges())
        texts.append(f"{level}:{sign}{text}")
        chain.append((level, named, bool(sign)))
    return f"{draw(blanks)}.{draw(blanks)}".join(texts), tuple(chain)


@st.composite
def items(draw):
    """An item: its text, and (taken away, CPUs, chain)."""
    kind = draw(st.sampled_from(["range", "range", "hex", "chain", "all"]))
    text, cpus, chain = "all", (), ()
    if kind == "range":
        text, cpus = draw(ranges())
    elif kind == "hex":
        text, cpus = draw(hexes())
    elif kind == "chain":
        text, chain = draw(chains())
    taken_away = draw(st.sampled_from([False, False, True]))
    return (f"^{draw(blanks)}{text}" if taken_away else text), (taken_away, cpus, chain)


@st.composite
def masks(draw, max_parts=3):
    """A mask of parts: its text with blanks, and the items of each part."""
    texts, values = [], []
    for _ in range(draw(st.integers(1, max_parts))):
        part = draw(st.lists(items(), min_size=1, max_size=4))
        texts.append(",".join(f"{draw(blanks)}{text}{draw(blanks)}" for text, _ in part))
        values.append([value for _, value in part])
    return "|".join(texts), values


@st.composite
def broken(draw):
    """The text of a mask with up to four characters deleted, inserted or swapped; it may still be one."""
    signs = list(draw(masks())[0])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(signs)))
        kind = draw(st.sampled_from(["delete", "insert", "swap"]))
        if kind == "delete":
            del signs[at : at + draw(st.integers(1, 3))]
        elif kind == "insert":
            signs[at:at] = draw(
                st.sampled_from([*"0123456789-,|^:./#xafn !;–\x1b", "99999", "socket:", "auto", "0x", "node"])
            )
        else:
            signs[at : at + 2] = signs[at : at + 2][::-1]
    return "".join(signs)


@st.composite
def machines(draw):
    """A machine of up to 32 CPUs, of which some may be offline, not allowed or set apart."""
    shape = Shape(
        packages=draw(st.integers(1, 2)),
        nodes=draw(st.integers(1, 2)),
        l3s=draw(st.integers(1, 2)),
        cores=draw(st.integers(1, 2)),
        smt=draw(st.sampled_from([1, 2])),
        numbering=draw(st.sampled_from(["split", "adjacent", "round-robin"])),
    )
    whole = make_machine(shape)
    allowed = CpuSet(draw(st.sets(st.sampled_from(list(whole.online)), min_size=1)))
    return whole.replace(
        allowed=draw(st.sampled_from([whole.online, allowed])),
        offline=draw(st.sampled_from([CpuSet(), CpuSet(range(len(whole.online), len(whole.online) + 4))])),
        isolated=draw(st.sampled_from([CpuSet(), CpuSet(list(whole.at(Level.CORE)[-1].cpus))])),
    )
