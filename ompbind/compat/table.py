"""All frameworks whose variables --compat reads, in one table."""

from collections.abc import Mapping

FRAMEWORKS: Mapping[str, str] = {
    "vllm": "ompbind.compat.vllm",
    "sglang": "ompbind.compat.sglang",
}
"""Every framework by its name for --compat, and the module of its `FRAMEWORK`, which is loaded when used."""
