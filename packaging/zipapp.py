"""Write ompbind, and the packages that it needs, as one file that Python runs: the zipapp `ompbind.pyz`.

    python packaging/zipapp.py [--output FILE] [--compiled] [--without-packages]

zipapp.txt names the packages and the hashes of their wheels; pip downloads them. The same tree gives the same
bytes on each system and with each Python: the entries are sorted, have constant dates and permissions, and
are not compressed, because versions of zlib differ. So compiled modules are an option: they depend on the
Python that compiles them. Other versions of Python ignore them and use the sources.
"""

import argparse
import compileall
import hashlib
import io
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode
from zipfile import ZIP_STORED, ZipFile, ZipInfo

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGES = HERE / "zipapp.txt"
START = HERE / "start_zipapp.py"

SHEBANG = b"#!/usr/bin/env python3\n"
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The date of all entries: the first that a zip file can express."""

Files = dict[str, bytes]
"""The content of each entry of the zipapp, by its name."""


def read_ompbind() -> Files:
    """Read the modules of ompbind, and the files that are installed beside them, the pages too."""
    package, docs = ROOT / "ompbind", ROOT / "docs"
    paths = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    pages = read_files(docs, [*docs.glob("*.md"), *docs.glob("schemas/*.json")])
    return {
        **read_files(ROOT, [ROOT / "LICENSE", *paths]),
        **{f"ompbind/pages/{name}": content for name, content in pages.items()},
        "__main__.py": START.read_bytes(),
    }


def read_files(directory: Path, paths: Iterable[Path]) -> Files:
    """Read some files below a directory."""
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def read_packages() -> Files:
    """Download the wheels of all packages, check their hashes, and read what they contain, licenses too."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check"]
        wheels_only = ["--require-hashes", "--no-deps", "--only-binary", ":all:"]
        subprocess.run(
            [*command, *wheels_only, "--dest", directory, "--requirement", str(PACKAGES)], check=True
        )
        wheels = sorted(Path(directory).glob("*.whl"))
        return {name: content for wheel in wheels for name, content in read_wheel(wheel)}


def read_wheel(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of the files in a wheel; raises SystemExit if it has compiled libraries."""
    if not path.name.endswith("-none-any.whl"):
        raise SystemExit(f"zipapp: error: {path.name} is not for every system")
    with ZipFile(path) as wheel:
        yield from ((info.filename, wheel.read(info)) for info in wheel.infolist() if not info.is_dir())


def compile_modules(files: Files) -> Files:
    """Return the compiled form of all modules, for the Python that runs this script."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_files(directory, files)
        compileall.compile_dir(
            directory, quiet=1, legacy=True, stripdir=name, workers=0,
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )  # fmt: skip
        return {
            path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*.pyc")
        }


def write_files(directory: Path, files: Files) -> None:
    """Write files below a directory."""
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def make_archive(files: Files) -> bytes:
    """Return the bytes of a zipapp with some files."""
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with ZipFile(buffer, "a", ZIP_STORED) as archive:
        for info in make_entries(files):
            archive.writestr(info, files[info.filename])
    return buffer.getvalue()


def make_entries(names: Iterable[str]) -> Iterator[ZipInfo]:
    """Yield the entries of a zipapp in their order; nothing in them depends on this system."""
    for name in sorted(names):
        info = ZipInfo(name, EARLIEST)
        info.create_system = 3  # Unix, which is the meaning of the permissions
        info.external_attr = 0o100644 << 16
        yield info


def write_zipapp(path: Path, content: bytes) -> None:
    """Write an executable file, and print its name, size and hash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    print(f"{hashlib.sha256(content).hexdigest()}  {path}  ({len(content) / 1e6:.1f} MB)")


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist/ompbind.pyz", metavar="FILE")
    parser.add_argument(
        "--compiled", action="store_true", help="add compiled modules, for faster starts with this Python"
    )
    parser.add_argument(
        "--without-packages", action="store_true", help="leave the packages to the Python that runs the file"
    )
    return parser.parse_args()


def main() -> None:
    """Write the zipapp."""
    options = read_options()
    files = {**({} if options.without_packages else read_packages()), **read_ompbind()}
    if options.compiled:
        files |= compile_modules(files)
    write_zipapp(options.output, make_archive(files))


if __name__ == "__main__":
    main()
