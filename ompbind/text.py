"""Clean foreign text for terminals: names of processes, words of commands, what files and ranks say.

A character that a terminal would not print as it is becomes "?". Escape sequences then move no cursor.
"""

NAME_LIMIT = 200
"""Characters of a name that others are shown."""


def printable(text: str) -> str:
    """Return text for one line: line ends and tabs are replaced too."""
    if text.isprintable():  # as nearly all names are, of which there are thousands
        return text
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def plain(text: str) -> str:
    """Return text that keeps its spaces, tabs and line ends."""
    return "".join(sign if sign.isprintable() or sign.isspace() else "?" for sign in text)


def tidy(name: str) -> str:
    """Return the name of a run or a process for one line, cut after NAME_LIMIT characters."""
    return printable(name[:NAME_LIMIT])
