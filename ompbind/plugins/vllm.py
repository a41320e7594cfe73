"""The plug-in of vLLM: the function that vLLM calls in each of its processes."""

import os


def register() -> None:
    """Let ompbind place the workers of this server if OMPBIND_VLLM is set."""
    if os.environ.get("OMPBIND_VLLM"):
        from ompbind.plugins.vllm_workers import replace_manager  # noqa: PLC0415 - door: OMPBIND_VLLM

        replace_manager()
