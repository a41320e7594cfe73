"""The quick imports: the same modules as Python's own imports, and every unusual case is left to Python."""

import builtins
import importlib.machinery
import importlib.util
import marshal
import os
import py_compile
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ompbind
from ompbind.cli.quick_imports import make_importer


def load(directory, name="sample"):
    """Import a package from a directory, and return it without a place in sys.modules."""
    spec = importlib.machinery.PathFinder.find_spec(name, [str(directory)])
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a module and a subpackage, all compiled."""
    monkeypatch.setattr(sys, "pycache_prefix", None)
    for name in ("__init__", "module", "inner/__init__", "inner/module"):
        path = tmp_path / "sample" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"name = {name!r}\n")
        py_compile.compile(path, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    return load(tmp_path)


@pytest.fixture
def modules(package, monkeypatch):
    """The loaded modules, with the package but none of its modules; restored afterwards."""
    before = dict(sys.modules)
    sys.modules["sample"] = package
    yield sys.modules
    sys.modules.clear()
    sys.modules.update(before)


def import_quickly(package, name, monkeypatch):
    """Import a module where Python cannot import; None if it was left to Python."""
    left = []
    monkeypatch.setattr(builtins, "__import__", lambda name, *_: left.append(name))
    importer = make_importer(package)
    importer(name)
    monkeypatch.undo()
    assert left == [name]  # Python returns what is loaded, and loads the rest
    return sys.modules.get(name)


def facts(spec):
    return (
        spec.name,
        spec.origin,
        spec.cached,
        spec.parent,
        spec.has_location,
        spec.submodule_search_locations,
        isinstance(spec.loader, importlib.machinery.SourceFileLoader),
        spec.loader.path,
        spec.loader.name,
    )


@pytest.mark.parametrize("name", ["sample.module", "sample.inner", "sample.inner.module"])
def test_modules_are_as_those_of_python(package, modules, monkeypatch, name):
    module = import_quickly(package, name, monkeypatch)
    found = module.__spec__
    search = [*package.__path__] if name.count(".") == 1 else [f"{package.__path__[0]}/inner"]
    usual = importlib.machinery.PathFinder.find_spec(name, search)
    assert facts(found) == facts(usual)
    of_python = vars(importlib.util.module_from_spec(usual))
    specific = {"__spec__": found, "__loader__": found.loader, "__package__": usual.parent}
    executed = {"name": module.name, "__builtins__": module.__builtins__}
    expected = {**of_python, **specific, **executed}
    expected.pop("__cached__", None)  # Python 3.15 has none
    assert {key: value for key, value in vars(module).items() if key != "module"} == expected
    assert module.__file__ == found.origin
    assert module.name in found.loader.get_source(name)
    assert found.loader.get_code(name).co_filename == found.origin  # for `inspect`


def test_packages_around_a_module_are_loaded_first(package, modules, monkeypatch):
    module = import_quickly(package, "sample.inner.module", monkeypatch)
    assert modules["sample.inner"].module is module
    assert package.inner is modules["sample.inner"]


def test_modules_are_loaded_once(package, modules, monkeypatch):
    first = import_quickly(package, "sample.module", monkeypatch)
    assert import_quickly(package, "sample.module", monkeypatch) is first


def test_code_names_its_source_after_a_move(package, modules, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sample").rename(tmp_path / "elsewhere" / "sample")
    path = tmp_path / "elsewhere" / "sample" / "module.py"
    path.write_text("def function(): pass\n")
    moved = load(tmp_path / "elsewhere")
    py_compile.compile(path, dfile="/other/module.py")
    modules["sample"] = moved
    module = import_quickly(moved, "sample.module", monkeypatch)
    assert module.function.__code__.co_filename == module.__file__ == str(path)


def test_files_without_code_are_refused_as_by_python(package, modules, tmp_path, monkeypatch):
    cached = tmp_path / importlib.util.cache_from_source(tmp_path / "sample" / "module.py")
    cached.write_bytes(cached.read_bytes()[:16] + marshal.dumps("no code"))
    with pytest.raises(ImportError, match=r"Non-code object in .*\.pyc"):
        import_quickly(package, "sample.module", monkeypatch)
    assert "sample.module" not in modules


def test_a_module_that_fails_is_not_loaded(package, modules, tmp_path, monkeypatch):
    path = tmp_path / "sample" / "module.py"
    path.write_text("raise KeyError('failed')\n")
    py_compile.compile(path)
    with pytest.raises(KeyError, match="failed"):
        import_quickly(package, "sample.module", monkeypatch)
    assert "sample.module" not in modules
    assert not hasattr(package, "module")


def remove_compiled(path, cached):
    cached.unlink()


def change_source(path, cached):
    path.write_text("name = 'longer than before'\n")


def touch_source(path, cached):
    os.utime(path, (1, 1))


def remove_source(path, cached):
    path.unlink()


def compile_with_hash(path, cached):
    py_compile.compile(path, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def compile_by_another_python(path, cached):
    cached.write_bytes(b"\0\0\r\n" + cached.read_bytes()[4:])


def truncate(path, cached):
    cached.write_bytes(cached.read_bytes()[:10])


def make_large(path, cached):
    path.write_text(f"name = {'x' * 70_000!r}\n")
    py_compile.compile(path)


def deny(path, cached):
    cached.unlink()
    cached.mkdir()


@pytest.mark.parametrize(
    "change",
    [
        remove_compiled,
        change_source,
        touch_source,
        remove_source,
        compile_with_hash,
        compile_by_another_python,
        truncate,
        make_large,
        deny,
    ],
)
def test_unusual_files_are_left_to_python(package, modules, tmp_path, monkeypatch, change):
    source = tmp_path / "sample" / "module.py"
    change(source, tmp_path / importlib.util.cache_from_source(source))
    assert import_quickly(package, "sample.module", monkeypatch) is None


@pytest.mark.parametrize("name", ["sampler.module", "json.missing", "sample.missing", "sample.inner.missing"])
def test_other_modules_are_left_to_python(package, modules, monkeypatch, name):
    assert import_quickly(package, name, monkeypatch) is None


def test_modules_within_modules_are_left_to_python(package, modules, monkeypatch):
    import_quickly(package, "sample.module", monkeypatch)
    assert import_quickly(package, "sample.module.missing", monkeypatch) is None


def test_compiled_files_elsewhere_are_left_to_python(package, tmp_path, monkeypatch):
    assert make_importer(package)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    assert make_importer(load(tmp_path)) is None


def test_packages_without_compiled_files_are_left_to_python(package):
    package.__spec__.has_location = False  # as in an archive
    package.__spec__.cached = None
    assert make_importer(package) is None
    assert make_importer(types.ModuleType("sample")) is None


SHOW = "print(__import__.__name__)"
START = """
from ompbind.__main__ import start
try:
    start()
except SystemExit:
    pass
"""


@pytest.mark.parametrize(
    ("code", "importer"),
    [(START, "import_quickly"), ("import ompbind.errors", "__import__")],
    ids=["command", "library"],
)
def test_only_the_command_uses_quick_imports(code, importer):
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-c", f"import sys\n{code}\n{SHOW}", "--version"]
    for _ in range(2):  # the first time, Python compiles what has changed
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split()[-1] == importer


def test_no_module_has_the_name_of_a_subpackage():
    root = Path(ompbind.__file__).parent  # Python would load the subpackage, the quick imports the module
    assert not [path for path in root.rglob("*.py") if path.with_suffix("").is_dir()]
