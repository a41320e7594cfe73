"""Hooks of mkdocs: the list of pages, pages outside of docs/, and tabs for shells.

The Markdown files stay readable on a disk and in a repository. These hooks change only the text
that mkdocs renders.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
OUTSIDE = {
    "README.md": "about.md",  # docs/README.md is the first page of the site
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages at the top of the repository, and their names in the site."""

SECTION = re.compile(r"^## (.+)\n((?:(?!## ).*\n?)*)", re.M)
ROW = re.compile(r"^\| \[([^\]]+)\]\(([\w./-]+\.md)\) \|", re.M)
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
CELLS = re.compile(r"^\|.*\|$", re.M)
CODE = re.compile(r"`[^`]+`")
WORD = re.compile(r"<code>([^<\s]{1,30})</code>")
SHELLS = re.compile(r"(?:```(?:bash|zsh|fish)\n(?:(?!```).*\n)*```\n+){2,}")
SHELL = re.compile(r"```(bash|zsh|fish)\n((?:(?!```).*\n)*)```\n")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation from the tables of docs/README.md: one section for each heading."""
    config.nav = [{"Overview": "README.md"}, *read_sections((ROOT / "docs/README.md").read_text())]
    return config


def read_sections(text: str) -> list[dict[str, list[dict[str, str]]]]:
    """Return the sections of the list of pages, as the navigation of mkdocs."""
    sections = {title: ROW.findall(body) for title, body in SECTION.findall(text)}
    return [
        {title: [{name: _find_page(posixpath.join("docs", path))} for name, path in rows]}
        for title, rows in sections.items()
        if rows
    ]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/."""
    for source, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with the links of the site, and with tabs for shells."""
    directory = "" if page.file.src_uri in OUTSIDE.values() else "docs"
    text = LINK.sub(lambda link: _make_link(link, directory, files), markdown)
    return make_tabs(CELLS.sub(lambda row: CODE.sub(_make_code, row[0]), text))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mark short words of code: browsers break a line after each hyphen of an option."""
    return WORD.sub(r'<code class="word">\1</code>', html)


def _make_code(code: re.Match[str]) -> str:
    """Return code in a table as mkdocs reads it; in other readers of Markdown a | needs a backslash there."""
    return code[0].replace("\\|", "|")


def _make_link(link: re.Match[str], directory: str, files: Files) -> str:
    """Return a link to the same file in the site; a link to a file that is not there becomes its text."""
    mark, text, target, heading = link.groups(default="")
    path = posixpath.join(directory, target)
    page = _find_page(path)
    if files.get_file_from_path(page):
        return f"{mark}[{text}]({page}{heading})"
    return text if (ROOT / path).is_file() else link[0]


def _find_page(path: str) -> str:
    """Return the name in the site of a file of the repository."""
    path = posixpath.normpath(path)
    return OUTSIDE.get(path) or path.removeprefix("docs/")


def make_tabs(markdown: str) -> str:
    """Return a text with tabs instead of consecutive blocks for different shells."""
    return SHELLS.sub(lambda blocks: _make_tabs(blocks[0]), markdown)


def _make_tabs(blocks: str) -> str:
    shells = [shell for shell, _ in SHELL.findall(blocks)]
    return SHELL.sub(_make_tab, blocks) if len(set(shells)) == len(shells) else blocks


def _make_tab(block: re.Match[str]) -> str:
    body = "".join(f"    {line}" for line in block[2].splitlines(keepends=True))
    return f'=== "{block[1]}"\n\n    ```{block[1]}\n{body}    ```\n'
