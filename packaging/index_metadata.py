"""Complete the metadata of a build: the addresses of the project, and README with absolute links.

A package index shows README without the files around it, so its relative links would lead nowhere. The only
place of the project's address is `repository` below `[tool.hatch.metadata.hooks.custom]` in pyproject.toml.
Without an address, links become plain text, pictures are left out, and the metadata has no addresses: nothing
false is published.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FENCE = re.compile(r"(^```.*?^```\n)", re.M | re.S)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:)([^)\s]+)\)")
"""A relative link or picture in Markdown, and its text, which may contain brackets."""


class IndexMetadataHook(MetadataHookInterface):
    """Sets `readme` and `urls`, which pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Change the table `[project]` of a build."""
        tree = make_tree(self.config["repository"], metadata["version"])
        text = make_links_absolute((Path(self.root) / "README.md").read_text(encoding="utf-8"), tree)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = make_urls(self.config["repository"], tree)


def make_tree(repository: str, version: str) -> str:
    """Return the address below which a host shows a file as of a version, or "" without a repository."""
    return f"{repository}/{{}}/v{version}" if repository else ""


def make_urls(repository: str, tree: str) -> dict[str, str]:
    """Return the addresses that an index shows beside the description, by name."""
    if not repository:
        return {}
    pages = tree.format("blob")
    return {
        "Repository": repository,
        "Documentation": f"{pages}/docs/README.md",
        "Changelog": f"{pages}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Security": f"{pages}/SECURITY.md",
    }


def make_links_absolute(text: str, tree: str) -> str:
    """Return Markdown with absolute links, or without relative links and pictures if there is no tree."""
    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else _replace_links(part, tree) for part in parts)


def _replace_links(text: str, tree: str) -> str:
    return LINK.sub(lambda link: _replace_link(link, tree), text)


def _replace_link(link: re.Match[str], tree: str) -> str:
    picture, shown, target = link.groups()
    if not tree:
        return "" if picture else shown
    return f"{picture}[{shown}]({tree.format('raw' if picture else 'blob')}/{target})"
