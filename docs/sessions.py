"""Run the sessions of all pages, and write what they print into the pages; a test compares.

A session is a block "console": commands after "$ ", each with what it prints below. "…" stands for any lines.

A session that shows something else, such as a large machine or a run of many minutes, is recorded. A comment
before the block says so, with the reason, or with the test that runs it:

    <!-- recorded: two users -->
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = tuple(sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))))

SESSION = re.compile(
    r"^(?:<!-- recorded: (?P<reason>.+) -->\n)?```console\n(?P<text>(?:(?!```).*\n)*)```$", re.M
)
COMMAND = re.compile(r"^\$ (?P<line>.+)\n(?P<printed>(?:(?!\$ ).*\n)*)", re.M)
VOLATILE = ((r"pid \d+", "pid N"),)
"""What differs between two runs: patterns, and the text that replaces them before a comparison."""

HOME = "/home/me"
"""The home directory of the reader of pages."""

CLAIMS = ".claims"
"""The directory of the home where runs register."""

PRESETS = re.compile(r"```toml\n(.*?)```", re.S)


def make_home(directory: Path, page: Path) -> Path:
    """Fill a home directory for the sessions of a page: its first example of ompbind.toml is the user's."""
    (directory / CLAIMS).mkdir()
    for text in PRESETS.findall(page.read_text())[:1]:
        presets = directory / ".config/ompbind/ompbind.toml"
        presets.parent.mkdir(parents=True)
        presets.write_text(text)
        presets.chmod(0o644)
    return directory


def find_sessions() -> Iterator[tuple[Path, str | None, str]]:
    """Yield (page, reason why it is recorded, text) for each session of all pages."""
    for page in PAGES:
        for session in SESSION.finditer(page.read_text()):
            yield page, session["reason"], session["text"]


def run_session(text: str, directory: Path) -> str:
    """Run the commands of a session; return it, with what they print now if that is different."""
    return COMMAND.sub(lambda command: _run(command, directory), text)


def _run(command: re.Match[str], directory: Path) -> str:
    done = subprocess.run(
        command["line"], shell=True, cwd=directory, env=make_environment(directory), text=True, check=False,
        timeout=60, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    printed = done.stdout.replace(str(directory), HOME)
    same = re.fullmatch(_make_pattern(command["printed"]), _replace_volatile(printed))
    return command[0] if same else f"$ {command['line']}\n{printed}"


def make_environment(home: Path) -> dict[str, str]:
    """Return the environment of a session: ompbind is found, and nothing of the caller has an effect."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)))
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "OMPBIND_RUNTIME_DIR": str(home / CLAIMS)}


def _make_pattern(shown: str) -> str:
    """Return a pattern for what a page shows."""
    return re.escape(_replace_volatile(shown)).replace("…\\\n", "(?:.*\n)*")


def _replace_volatile(text: str) -> str:
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text


def _render_session(session: re.Match[str], directory: Path) -> str:
    text = session["text"]
    return session[0] if session["reason"] else session[0].replace(text, run_session(text, directory))


def render_page(page: Path) -> str:
    """Return the text of a page with what its sessions print."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        home = make_home(Path(made), page)
        return SESSION.sub(lambda session: _render_session(session, home), page.read_text())


def main() -> None:
    """Write all pages again."""
    for page in PAGES:
        page.write_text(render_page(page))


if __name__ == "__main__":
    main()
