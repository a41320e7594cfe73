"""The quick imports: the same modules as Python's own imports, and every unusual case is left to Python."""

import builtins
import importlib.machinery
import importlib.util
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ompbind
from ompbind.cli.quick_imports import make_importer, make_loader

PACKAGE = Path(ompbind.__file__).parent
MAGIC = importlib.util.MAGIC_NUMBER
START_SIZE = len(MAGIC) + 16 + 1
"""Bytes before the modules of a bundle: magic number, header of its writer, version (here none), new line."""


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


def import_quickly(package, name, monkeypatch, loader=None):
    """Import a module where Python cannot import; None if it was left to Python."""
    left = []
    monkeypatch.setattr(builtins, "__import__", lambda name, *_: left.append(name))
    importer = make_importer(loader or make_loader(package))
    importer(name)
    monkeypatch.undo()
    assert left == [name]  # Python returns what is loaded, and loads the rest
    return sys.modules.get(name)


def write_bundle(package, monkeypatch, *names):
    """Write a bundle of some modules, and forget these modules; returns its path."""
    loader = make_loader(package)
    loader.read_bundle("verb")
    assert loader.is_outdated  # there is none
    for name in names:
        import_quickly(package, name, monkeypatch, loader)
    loader.write_bundle()
    for name in [name for name in sys.modules if name.startswith("sample.")]:
        del sys.modules[name]
    return next(Path(package.__path__[0]).glob("__pycache__/verb.*.bundle"))


def load_with_bundle(package):
    loader = make_loader(package)
    loader.read_bundle("verb")
    return loader


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


@pytest.mark.parametrize("is_bundled", [False, True])
@pytest.mark.parametrize("name", ["sample.module", "sample.inner", "sample.inner.module"])
def test_modules_are_as_those_of_python(package, modules, monkeypatch, name, is_bundled):
    loader = make_loader(package)
    if is_bundled:
        write_bundle(package, monkeypatch, name)
        for path in Path(package.__path__[0]).rglob("*.pyc"):
            path.unlink()  # it must come from the bundle
        loader = load_with_bundle(package)
        assert not loader.is_outdated
    module = import_quickly(package, name, monkeypatch, loader)
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


def test_names_of_loaded_modules_are_found_without_python(package, modules, monkeypatch):
    module = import_quickly(package, "sample.module", monkeypatch)
    calls = []
    by_python = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", lambda *words: calls.append(words[0]) or by_python(*words))
    importer = make_importer(make_loader(package))
    for _ in range(3):
        assert importer("sample.module", None, None, ("name",), 0) is module
        assert importer("sample.module", None, None, None, 0) is package
        assert importer("sample.inner", None, None, ("module",), 0).module.name == "inner/module"
    assert calls.count("sample.module") == 4  # the first time, and each time without names
    assert calls.count("sample.inner") == 3  # a package: Python imports the module of this name, if any


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
    assert make_loader(package)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "cache"))
    assert make_loader(load(tmp_path)) is None


def test_packages_without_compiled_files_are_left_to_python(package):
    package.__spec__.has_location = False  # as in an archive
    package.__spec__.cached = None
    assert make_loader(package) is None
    assert make_loader(types.ModuleType("sample")) is None


def write_magic_only(bundle):
    bundle.write_bytes(bundle.read_bytes()[: len(MAGIC)])


def write_other_magic(bundle):
    bundle.write_bytes(b"\0\0\r\n" + bundle.read_bytes()[len(MAGIC) :])


def write_half(bundle):
    bundle.write_bytes(bundle.read_bytes()[: bundle.stat().st_size // 2])


def write_nothing(bundle):
    bundle.write_bytes(b"")


def write_zeros(bundle):
    bundle.write_bytes(bundle.read_bytes()[:START_SIZE] + bytes(100))


def write_other_content(bundle):
    bundle.write_bytes(bundle.read_bytes()[:START_SIZE] + marshal.dumps(None))


def remove_bundle(bundle):
    bundle.unlink()


@pytest.mark.parametrize(
    "damage",
    [
        write_magic_only,
        write_other_magic,
        write_half,
        write_nothing,
        write_zeros,
        write_other_content,
        remove_bundle,
    ],
)
def test_damaged_bundles_are_not_used(package, modules, monkeypatch, damage):
    damage(write_bundle(package, monkeypatch, "sample.module"))
    loader = load_with_bundle(package)
    assert loader.is_outdated
    assert import_quickly(package, "sample.module", monkeypatch, loader).name == "module"


def test_bundles_with_many_unused_modules_are_outdated(package, modules, monkeypatch):
    names = [f"module{number}" for number in range(18)]
    for name in names:
        path = Path(package.__path__[0]) / f"{name}.py"
        path.write_text(f"name = {name!r}\n")
        py_compile.compile(path)
    write_bundle(package, monkeypatch, *(f"sample.{name}" for name in names))
    loader = load_with_bundle(package)
    assert loader.is_outdated
    for name in names[:2]:
        import_quickly(package, f"sample.{name}", monkeypatch, loader)
    assert not loader.is_outdated


def test_bundles_of_another_version_are_not_used(package, modules, monkeypatch):
    package.__version__ = "1.0"
    source = Path(package.__path__[0]) / "module.py"
    write_bundle(package, monkeypatch, "sample.module")
    package.__version__ = "1.1"
    before = source.stat()
    source.write_text(source.read_text().replace("module", "update"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))  # as in archives whose files have one time
    py_compile.compile(source)
    loader = load_with_bundle(package)
    assert loader.is_outdated
    assert import_quickly(package, "sample.module", monkeypatch, loader).name == "update"


def test_bundles_have_the_permissions_of_sources(package, modules, monkeypatch):
    (Path(package.__path__[0]) / "__init__.py").chmod(0o640)
    before = os.umask(0)
    try:
        bundle = write_bundle(package, monkeypatch, "sample.module")
    finally:
        os.umask(before)
    assert bundle.stat().st_mode & 0o777 == 0o640


def test_an_empty_compiled_file_without_source_is_left_to_python(package, modules, monkeypatch):
    source = Path(package.__path__[0]) / "module.py"
    Path(importlib.util.cache_from_source(source)).write_bytes(b"")
    source.unlink()
    assert import_quickly(package, "sample.module", monkeypatch) is None


def test_bundles_move_with_their_package(package, modules, tmp_path, monkeypatch):
    (tmp_path / "sample" / "module.py").write_text("def function(): return [1 for _ in ()]\n")
    py_compile.compile(tmp_path / "sample" / "module.py")
    write_bundle(package, monkeypatch, "sample.module", "sample.inner.module")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sample").rename(tmp_path / "elsewhere" / "sample")
    modules["sample"] = moved = load(tmp_path / "elsewhere")
    loader = load_with_bundle(moved)
    module = import_quickly(moved, "sample.module", monkeypatch, loader)
    inner = import_quickly(moved, "sample.inner.module", monkeypatch, loader)
    assert not loader.is_outdated
    source = f"{moved.__path__[0]}/module.py"
    assert module.__file__ == module.__spec__.origin == module.__spec__.loader.path == source
    assert module.function.__code__.co_filename == source
    assert module.__spec__.cached == importlib.util.cache_from_source(source)
    assert modules["sample.inner"].__path__ == [f"{moved.__path__[0]}/inner"]
    assert inner.__file__ == f"{moved.__path__[0]}/inner/module.py"


@pytest.mark.parametrize("change", [change_source, touch_source])
def test_changed_modules_of_a_bundle_are_read_again(package, modules, monkeypatch, change):
    write_bundle(package, monkeypatch, "sample.module", "sample.inner.module")
    source = Path(package.__path__[0]) / "module.py"
    change(source, None)
    py_compile.compile(source)
    loader = load_with_bundle(package)
    import_quickly(package, "sample.inner.module", monkeypatch, loader)
    assert not loader.is_outdated
    module = import_quickly(package, "sample.module", monkeypatch, loader)
    assert f"name = {module.name!r}\n" == source.read_text()
    assert loader.is_outdated


def test_a_module_that_was_removed_is_not_in_the_bundle_any_more(package, modules, monkeypatch):
    write_bundle(package, monkeypatch, "sample.module")
    remove_source(Path(package.__path__[0]) / "module.py", None)
    assert import_quickly(package, "sample.module", monkeypatch, load_with_bundle(package)) is None


def test_a_bundle_that_cannot_be_written_is_no_error(package, modules, monkeypatch):
    bundle = write_bundle(package, monkeypatch, "sample.module")
    bundle.unlink()
    (bundle / "taken").mkdir(parents=True)
    before = sorted(bundle.parent.iterdir())
    loader = load_with_bundle(package)
    assert loader.is_outdated
    loader.write_bundle()
    assert sorted(bundle.parent.iterdir()) == before


def test_a_bundle_for_which_memory_is_missing_is_no_error(package, modules, monkeypatch):
    loader = load_with_bundle(package)
    import_quickly(package, "sample.module", monkeypatch, loader)

    def fail(*words, **options):
        raise MemoryError

    monkeypatch.setattr(builtins, "compile", fail)
    loader.write_bundle()
    monkeypatch.undo()
    assert not list(Path(package.__path__[0]).rglob("*.bundle"))


def test_sources_that_are_being_changed_make_no_bundle(package, modules, monkeypatch):
    loader = load_with_bundle(package)
    import_quickly(package, "sample.module", monkeypatch, loader)
    (Path(package.__path__[0]) / "module.py").write_text("half of a (")
    loader.write_bundle()
    assert not list(Path(package.__path__[0]).rglob("*.bundle"))


@pytest.fixture
def copied(tmp_path):
    """A function that runs ompbind from a copy of the package, and returns which compiled files it opened."""
    shutil.copytree(PACKAGE, tmp_path / "ompbind", ignore=shutil.ignore_patterns("__pycache__"))
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}

    def run(*words, **variables):
        command = [sys.executable, "-c", LIST_OPENED, *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**env, **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert not done.returncode, done.stderr
        opened = [path for path in done.stdout.splitlines() if path.startswith(f"{tmp_path}/")]
        return [Path(path).name for path in opened if path.endswith((".pyc", ".bundle"))]

    return run


LIST_OPENED = """
import os, sys
sys.addaudithook(lambda event, args: event == "open" and os.write(1, f"{args[0]}\\n".encode()))
from ompbind.__main__ import start
start()
"""


@pytest.mark.parametrize("words", [("run", "--share", "-n", "2", "--"), ("exec", "--")])
def test_the_second_start_reads_one_file_for_most_modules(copied, tmp_path, words):
    suffix = f".{sys.implementation.cache_tag}.bundle"
    bundle = tmp_path / "ompbind" / "__pycache__" / f"{words[0]}{suffix}"
    copied(*words, "true", PYTHONDONTWRITEBYTECODE="1")
    assert not bundle.exists()
    copied(*words, "true")
    assert bundle.exists()
    written = bundle.stat().st_mtime_ns
    opened = copied(*words, "true")
    assert opened.count(bundle.name) == 1
    assert len(opened) < 12
    assert bundle.stat().st_mtime_ns == written
    with (tmp_path / "ompbind" / "cpuset.py").open("a") as file:
        file.write("# changed\n")
    copied(*words, "true")
    assert bundle.stat().st_mtime_ns > written
    assert len(copied(*words, "true")) == len(opened)


def test_a_bundle_of_another_form_is_not_used(copied, tmp_path):
    copied("exec", "--", "true")
    (bundle,) = tmp_path.rglob("*.bundle")
    content = bundle.read_bytes()
    size = START_SIZE + len(ompbind.__version__)
    directory, bundled = marshal.loads(content[size:])
    other = {name: (*compiled, "new") for name, compiled in bundled.items()}
    bundle.write_bytes(content[:size] + marshal.dumps((directory, other)))
    with (tmp_path / "ompbind" / "cli" / "quick_imports.py").open("a") as file:
        file.write("# the version that reads the other form\n")
    copied("exec", "--", "true")
    assert {len(compiled) for compiled in marshal.loads(bundle.read_bytes()[size:])[1].values()} == {3}


@pytest.mark.parametrize(
    ("words", "variables", "is_written"),
    [
        (("exec", "--local-rank", "0", "--local-size", "2", "--"), {}, True),
        (("exec", "--local-rank", "1", "--local-size", "2", "--"), {}, False),
        (("run", "--share", "--"), {"SLURM_LOCALID": "0"}, False),
    ],
)
def test_one_process_of_a_job_writes_a_bundle(copied, tmp_path, words, variables, is_written):
    copied(*words, "true", **variables)
    assert bool(list(tmp_path.rglob("*.bundle"))) == is_written


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
    # Python would load the subpackage, the quick imports the module
    assert not [path for path in PACKAGE.rglob("*.py") if path.with_suffix("").is_dir()]
