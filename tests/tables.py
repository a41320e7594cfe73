"""Tables of test cases as text."""

import re


def rows(text):
    """Return the cells of each line; a bar between spaces separates cells."""
    return [tuple(map(str.strip, re.split(r" \|(?: |$)", line))) for line in text.strip().splitlines()]
