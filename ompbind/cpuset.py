"""`CpuSet`: an immutable set of CPU numbers, and all of its text forms.

In this module a *list* is kernel list text such as "0-3,8", and a *mask* is kernel hex text such as
"ff,ffffffff". A set has no order; where the order of CPUs matters, they are in a tuple of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from ompbind.text import whole_number

CPU_LIMIT = 1 << 16
"""One past the highest CPU number that ompbind accepts, so that no text can request a huge set."""

_SET_LIMIT = 1 << 20  # characters of a set; the longest text that a kernel writes has a tenth


class CpuSet:
    """An immutable set of CPU numbers from 0 to CPU_LIMIT - 1, stored as the bits of an integer.

    >>> cpus = CpuSet([0, 1, 2, 3, 8])
    >>> str(cpus), len(cpus), 8 in cpus
    ('0-3,8', 5, True)
    >>> cpus - CpuSet.from_list("0-1")
    CpuSet.from_list('2-3,8')
    """

    __slots__ = ("bits",)
    bits: int

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        bits = 0
        for cpu in cpus:
            bits |= 1 << cpu
        object.__setattr__(self, "bits", bits)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a CpuSet is immutable: cannot set {name}")

    @classmethod
    def from_bits(cls, bits: int) -> CpuSet:
        """Return the set of the numbers of the bits that are 1."""
        made = cls.__new__(cls)
        object.__setattr__(made, "bits", bits)
        return made

    @classmethod
    def from_list(cls, text: str) -> CpuSet:
        """Read kernel list text such as "0-3,8" or "0-31:2/8".

        Spaces, line ends and NUL bytes around the list are ignored. "" is the empty set, and so is "(null)",
        which some kernels write. Raises ValueError if the text is not a list.
        """
        text = text.strip("\0 \t\r\n")
        return EMPTY if text in ("", "(null)") else union(map(_parse_range, text.split(",")))

    @classmethod
    def from_mask(cls, text: str) -> CpuSet:
        """Read kernel mask text such as "ff" or "ff,ffffffff" (words of 32 bits, most significant first).

        Raises ValueError if the text is not a mask.
        """
        digits = text.strip("\0 \t\r\n")
        if len(digits) > CPU_LIMIT // 3:
            raise ValueError("the mask is too long")
        commas, head = divmod(len(digits), 9)
        is_padded = digits[head::9] == "," * commas and digits.count(",") == commas
        if not is_padded:  # some words have fewer than 8 digits
            first, *words = digits.split(",")
            digits = first + "".join(word.rjust(8, "0") for word in words)
        if not digits.isascii() or any(character in digits for character in "_+- xX"):
            raise ValueError(f"{digits[:40]!r} is not a mask")
        try:
            made = cls.from_bits(int(digits.replace(",", ""), 16))
        except ValueError:
            raise ValueError(f"{digits[:40]!r} is not a mask") from None
        if made.bits.bit_length() > CPU_LIMIT:
            raise ValueError(f"the mask names CPUs above {CPU_LIMIT - 1}")
        return made

    def __iter__(self) -> Iterator[int]:
        if len(self) <= 4:  # often the hardware threads of a core, whose numbers are far apart
            rest = self.bits
            while rest:
                lowest = rest & -rest
                yield lowest.bit_length() - 1
                rest ^= lowest
            return
        low = self.first
        digits = f"{self.bits >> low:b}"[::-1]
        at = 0
        while at >= 0:
            yield low + at
            at = digits.find("1", at + 1)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __contains__(self, cpu: int) -> bool:
        return cpu >= 0 and (self.bits >> cpu) & 1 == 1

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_bits(self.bits | other.bits)

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_bits(self.bits & other.bits)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_bits(self.bits & ~other.bits)

    def __le__(self, other: CpuSet) -> bool:
        return self.bits & ~other.bits == 0

    def __lt__(self, other: CpuSet) -> bool:
        return self <= other and self != other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuSet) and self.bits == other.bits

    def __hash__(self) -> int:
        return hash((self.bits, self.bits.bit_length()))  # the hash of an int alone repeats every 61 bits

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return CpuSet.from_bits, (self.bits,)

    def __repr__(self) -> str:
        return f"CpuSet.from_list({str(self)!r})"

    def __str__(self) -> str:
        return ",".join(render_range(start, length) for start, length in self.ranges())

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield (first CPU, length) of each run of neighbouring numbers, in rising order."""
        bits, offset = self.bits, 0
        while bits:
            skip = (bits & -bits).bit_length() - 1
            bits >>= skip
            length = (~bits & (bits + 1)).bit_length() - 1
            yield offset + skip, length
            bits >>= length
            offset += skip + length

    def isdisjoint(self, other: CpuSet) -> bool:
        """Return whether the two sets have no CPU in common."""
        return self.bits & other.bits == 0

    @property
    def first(self) -> int:
        """The lowest number; raises ValueError if the set is empty."""
        if not self.bits:
            raise ValueError("the set is empty")
        return (self.bits & -self.bits).bit_length() - 1


def render_range(start: int, length: int) -> str:
    """Return consecutive numbers as list text: "3", "0-7"."""
    return str(start) if length == 1 else f"{start}-{start + length - 1}"


def render_ranges(runs: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield the texts of runs in their order; four or more evenly spaced runs are one stride ("0-62:2").

    `runs` are (first number, length); there is a gap between one run and the next. The mask grammar reads
    these texts.
    """
    at = 0
    while at < len(runs):
        step, stop = runs[min(at + 1, len(runs) - 1)][0] - runs[at][0], at + 1
        while step > 0 and stop < len(runs) and runs[stop] == (runs[stop - 1][0] + step, runs[at][1]):
            stop += 1
        stop = stop if stop >= at + 4 else at + 1  # fewer are easier to read one by one
        yield _render_evenly_spaced(runs[at:stop])
        at = stop


def render_sequence(numbers: Sequence[int]) -> Iterator[str]:
    """Yield the texts of distinct numbers in their order: single numbers, ranges and strides."""
    return render_ranges(list(_sequence_runs(numbers)))


def range_text(numbers: Sequence[int]) -> str:
    """Return numbers as the text of one range or stride: "5", "0-3", "0-14:2", "0-9:2/8"."""
    return _render_evenly_spaced(list(_sequence_runs(numbers)))


def _render_evenly_spaced(runs: Sequence[tuple[int, int]]) -> str:
    """Return a run as a range, several runs as a stride: "0-62:2", "0-31:2/8"; the last may be shorter."""
    (start, width), (last, last_width) = runs[0], runs[-1]
    if len(runs) == 1:
        return render_range(start, width)
    step = runs[1][0] - start
    return f"{start}-{last + last_width - 1}:{step if width == 1 else f'{width}/{step}'}"


def _sequence_runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield (first number, length) of each run of consecutive numbers."""
    for _, pairs in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [number for _, number in pairs]
        yield run[0], len(run)


EMPTY = CpuSet()  # the empty set


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """Return the set of all CPUs that are in any of `sets`."""
    bits = 0
    for cpus in sets:
        bits |= cpus.bits
    return CpuSet.from_bits(bits)


def parse_set(text: str | None, parse: Callable[[str], CpuSet]) -> CpuSet | None:
    """Return the set that a text names; None for None, for a malformed text and for one that is too long."""
    try:
        return None if text is None or len(text) > _SET_LIMIT else parse(text)
    except ValueError:
        return None


def _parse_range(item: str) -> CpuSet:
    span, _, stride = item.partition(":")
    low, _, high = span.partition("-")
    start = _number(low)
    stop = _number(high) if "-" in span else start
    if stop < start:
        raise ValueError(f"range {item!r} is reversed")
    if ":" not in item:
        return CpuSet.from_bits(((1 << (stop - start + 1)) - 1) << start)
    used, _, group = stride.partition("/")
    width, step = (_number(used), _number(group)) if "/" in stride else (1, _number(used))
    return CpuSet(strided(start, stop, width, step))


def count(number: float, noun: str) -> str:
    """Return a number with its noun: "1 core", "2 cores", "2.5 CPUs"."""
    text = number if isinstance(number, int) else f"{number:g}"
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{text} {noun if number == 1 else plural}"


def named(noun: str, numbers: Iterable[int]) -> str:
    """Return numbers with their noun: "rank 0", "ranks 0,2"; CPUs with strides: "CPUs 0-14:2"."""
    chosen = CpuSet(numbers)
    text = ",".join(render_ranges(list(chosen.ranges()))) if noun == "CPU" else str(chosen)
    return f"{noun} {text}" if len(chosen) == 1 else f"{noun}s {text}"


def join_words(words: Iterable[object], conjunction: str = "and") -> str:
    """Return words as text: "gpu:0", "gpu:0 and gpu:1", "gpu:0, gpu:1 and gpu:2"; there is at least one."""
    *most, last = map(str, words)
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def strided(start: int, stop: int, width: int, step: int) -> Iterator[int]:
    """Yield the first `width` of every `step` numbers, from start to stop (both included)."""
    if not 1 <= width <= step:
        raise ValueError("a stride selects 1 or more numbers of each group")
    for base in range(start, stop + 1, step):
        yield from range(base, min(base + width, stop + 1))


def _number(text: str) -> int:
    if (number := whole_number(text, CPU_LIMIT)) is None:
        raise ValueError(f"{text!r} is not a CPU number")
    return number
