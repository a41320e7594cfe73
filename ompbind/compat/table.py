"""The table of frameworks whose variables --compat reads."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes time: see record.py
if TYPE_CHECKING:
    from collections.abc import Mapping


FRAMEWORKS: Mapping[str, str] = {
    "vllm": "ompbind.compat.vllm",
    "sglang": "ompbind.compat.sglang",
}
"""Name for --compat → module with the `FRAMEWORK` record, which is imported when needed."""
