"""Loads scripts that are not in a package."""

import sys
from importlib import util
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def load_script(path):
    spec = util.spec_from_file_location(f"script_{Path(path).stem}", ROOT / path)
    module = sys.modules[spec.name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
