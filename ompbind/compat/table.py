"""The table of frameworks whose variables --compat reads."""

from collections.abc import Mapping

FRAMEWORKS: Mapping[str, str] = {
    "vllm": "ompbind.compat.vllm",
    "sglang": "ompbind.compat.sglang",
}
"""Name for --compat → module with the `FRAMEWORK` record, which is imported when needed."""
