"""Test a source distribution with other Pythons, in root directories made of packages of Debian and Ubuntu.

    python packaging/pythons.py dist/ompbind-*.tar.gz [--zipapp dist/ompbind.pyz] [--minimal]

For each Python of a table, the script unpacks a system with this Python (mmdebstrap; no scripts of packages
run). In this root directory it runs `make demo`, each verb of the command line, and the tests that start no
other process; with the Pythons in LIVE also tests with real processes. pip installs from a directory of
wheels, which the Python that runs this script downloads. The script needs mmdebstrap, unshare and root. If
packages cannot be had, it uses a Python of this machine, without another root directory.

With --minimal, it runs `make test` in a Debian with only Python and make, as an ordinary user and as root.
"""

import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from ompbind.record import Record


class Distribution(Record):
    """A release of Debian or Ubuntu: `keyring` is None if the system knows its keys."""

    name: str
    mirror: str
    components: str = "main"
    keyring: str | None = None
    includes: tuple[str, ...] = ()


DEBIAN = "http://deb.debian.org/debian"
# The keys of Ubuntu come from a package of Debian, which Debian's keys protect.
KEYRING_PACKAGE = "ubuntu-archive-keyring"
KEYRING = "usr/share/keyrings/ubuntu-archive-keyring.gpg"

TRIXIE = Distribution(name="trixie", mirror=DEBIAN)
FORKY = Distribution(name="forky", mirror=DEBIAN, includes=(KEYRING_PACKAGE,))
NOBLE = Distribution(
    name="noble",
    mirror="http://archive.ubuntu.com/ubuntu",
    components="main,universe",
    keyring=f"forky/{KEYRING}",
)

PYTHONS = {"3.15": FORKY, "3.14": FORKY, "3.13": TRIXIE, "3.12": NOBLE}
"""Each Python, newest first, and the distribution that has it. The gate itself runs with 3.11."""

LIVE = ("3.14",)
"""Pythons with which tests with real processes run."""

PACKAGES = (
    "base-files", "bash", "coreutils", "dash", "diffutils", "findutils", "grep", "gzip", "hostname",
    "libc-bin", "libgomp1", "make", "procps", "sed", "tar", "util-linux",
)  # fmt: skip
"""What `make` and the tests use, besides Python."""

COPIED = ("/etc/passwd", "/etc/group", "/etc/ssl/certs/ca-certificates.crt")
"""Files that the scripts of packages would write; pip reads the certificates before it installs anything."""

# Mounts in a mount namespace of its own, which vanish with the process.
ENTER = """
set -e
root=$1 wheels=$2; shift 2
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/mnt"
mount --bind "$wheels" "$root/mnt"
if [ -n "${PYENV-}" ]; then
    mkdir -p "$root$PYENV"
    mount --bind "$PYENV" "$root$PYENV"
fi
exec chroot "$root" "$@"
"""
ISOLATED = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")

TEST = """
set -e
make demo PYTHON={python}
make .venv/.developing
export PATH="$PWD/.venv/bin:$PATH"
python -W error -m compileall -q -f ompbind docs/examples
verbs="python -m pytest -q -n 2 --part pythons tests/packaging"
$verbs
zipapp="$PIP_FIND_LINKS/ompbind.pyz"
[ ! -e "$zipapp" ] || OMPTEST_COMMAND="{python} -I -S $zipapp" $verbs
python -m pytest -q -n 2 --dist worksteal --ignore=tests/live --ignore=tests/vm --ignore=tests/packaging
"""


class Place(Record):
    """Where a Python is: `root` is a root directory, None for a Python of this machine."""

    version: str
    root: Path | None
    executable: str


def make_root(distribution: Distribution, directory: Path) -> Path:
    """Unpack a distribution with its Pythons into DIRECTORY/NAME. Raises CalledProcessError."""
    root = directory / distribution.name
    pythons = [f"python{version}-venv" for version, home in PYTHONS.items() if home == distribution]
    packages = ",".join((*PACKAGES, *pythons, *distribution.includes))
    keyring = [f"--keyring={directory / distribution.keyring}"] if distribution.keyring else []
    subprocess.run(
        [
            "mmdebstrap", "--quiet", "--variant=extract", f"--components={distribution.components}", *keyring,
            # Mirrors may be older than the week for which Debian signs releases in development
            '--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "5"',
            f"--include={packages}",
            distribution.name, str(root), distribution.mirror,
        ],
        check=True,
    )  # fmt: skip
    for path in filter(os.path.exists, COPIED):
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return root


def find_places(versions: list[str], directory: Path) -> list[Place]:
    """Make the root directories that some Pythons need; stop the program if a Python cannot be had."""
    homes = [*dict.fromkeys(PYTHONS[version] for version in versions)]
    if NOBLE in homes and FORKY not in homes:
        homes.insert(0, FORKY)
    roots = {}
    for home in homes:
        try:
            roots[home] = make_root(home, directory)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"packages of {home.name} cannot be had: {error}", file=sys.stderr)
    return [_find_place(version, roots.get(PYTHONS[version])) for version in versions]


def _find_place(version: str, root: Path | None) -> Place:
    name = f"python{version}"
    if root:
        return Place(version=version, root=root, executable=name)
    known = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/{name}")))
    executable = shutil.which(name) or (known[-1] if known else None)
    if not executable:
        packages = f"packages of {PYTHONS[version].name}"
        sys.exit(f"there is no Python {version}: neither {packages} nor a program {name} on this machine")
    return Place(version=version, root=None, executable=executable)


def read_requirements(source: Path) -> list[str]:
    """Return what `make .venv/.developing` installs in an unpacked source distribution."""
    project = tomllib.loads((source / "pyproject.toml").read_text())
    wanted = (*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"])
    # The build back end asks for `editables` when it installs a directory as editable
    return [*wanted, *project["build-system"]["requires"], "editables"]


def download_wheels(requirements: list[str], versions: list[str], wheels: Path) -> None:
    """Download wheels for some Pythons at the same time. Raises CalledProcessError."""
    command = [sys.executable, "-m", "pip", "--quiet", "download", "--dest", str(wheels)]
    running = [
        subprocess.Popen([*command, "--only-binary=:all:", "--python-version", version, *requirements])
        for version in versions
    ]
    for process in running:
        if process.wait() != 0:
            raise subprocess.CalledProcessError(process.returncode, process.args)


def unpack(sdist: str, directory: Path) -> Path:
    """Unpack a source distribution into a directory, and return the directory of its files."""
    shutil.unpack_archive(sdist, directory)
    return directory / Path(sdist).name.removesuffix(".tar.gz")


def make_script(place: Place) -> str:
    """Return the shell script that tests the source distribution in the current directory."""
    script = TEST.format(python=place.executable)
    if place.version in LIVE:
        script += "python -m pytest -q -n 2 --dist worksteal tests/live\n"
    return script


def run_tests(place: Place, sdist: str, wheels: Path, directory: Path) -> None:
    """Unpack the source distribution for a Python, and test it there. Raises CalledProcessError."""
    home = (place.root or directory) / f"opt/{place.version}"
    home.mkdir(parents=True)
    source = unpack(sdist, home)
    settings = ["PIP_NO_INDEX=1", "PIP_NO_CACHE_DIR=1", "OMPTEST_EXAMPLES=5", "LANG=C.UTF-8"]
    script = ["sh", "-c", make_script(place)]
    if place.root is None:
        outside = ["env", "-u", "OMPTEST_ALL", *settings, f"PIP_FIND_LINKS={wheels}"]
        subprocess.run([*outside, *script], check=True, cwd=source)
        return
    inside = ["env", "-i", f"--chdir=/{source.relative_to(place.root)}", *settings, "PIP_FIND_LINKS=/mnt"]
    system = ["HOME=/root", "PATH=/usr/bin:/usr/sbin"]
    enter = [*ISOLATED, "sh", "-c", ENTER, "sh", str(place.root), str(wheels)]
    subprocess.run([*enter, *inside, *system, *script], check=True)


def run_minimal(sdist: str, directory: Path) -> None:
    """Run `make test` in a Debian with only Python and make: as an ordinary user, and as root.

    root uses pyenv's Python, if this machine has pyenv. Raises CalledProcessError.
    """
    root, wheels = directory / "minimal", directory / "wheels"
    included = "--include=make,python3,python3-venv"
    how = ("--quiet", "--variant=essential", '--aptopt=Acquire::Retries "5"', included)
    subprocess.run(["mmdebstrap", *how, "bookworm", str(root), DEBIAN], check=True)
    download_wheels(read_requirements(unpack(sdist, directory / "source")), ["3.11"], wheels)
    pyenv = os.path.expanduser("~/.pyenv")
    if not os.path.isdir(pyenv):
        pyenv = ""
    system = "/usr/bin:/bin:/usr/sbin:/sbin"
    for user, path in ((1000, system), (0, f"{pyenv}/shims:{pyenv}/bin:{system}" if pyenv else system)):
        home = root / f"opt/{user}"
        source = unpack(sdist, home)
        subprocess.run(["chown", "-R", f"{user}:{user}", str(home)], check=True)
        who = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        settings = ["PIP_NO_INDEX=1", "PIP_FIND_LINKS=/mnt", f"HOME=/opt/{user}", f"PATH={path}"]
        inside = [*who, "env", "-i", f"--chdir=/{source.relative_to(root)}", *settings, "make", "test"]
        print(f"-- make test as user {user}, PATH={path}", flush=True)
        enter = [*ISOLATED, "sh", "-c", ENTER, "sh", str(root), str(wheels)]
        subprocess.run([*enter, *inside], check=True, env={**os.environ, "PYENV": pyenv if user == 0 else ""})


def main() -> None:
    """Test each Python, and print the time that it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sdist", help="the source distribution")
    parser.add_argument("--zipapp", help="a file of `make zipapp`; each Python checks it, too")
    parser.add_argument("--only", action="append", choices=list(PYTHONS), help="test only this Python")
    parser.add_argument("--minimal", action="store_true", help="run `make test` with only Python and make")
    options = parser.parse_args()
    if options.minimal:
        with tempfile.TemporaryDirectory() as name:
            Path(name).chmod(0o755)
            run_minimal(options.sdist, Path(name))
        return
    versions = options.only or list(PYTHONS)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)  # apt downloads as a user of its own
        begun = time.monotonic()
        places = find_places(versions, directory)
        wheels = directory / "wheels"
        download_wheels(read_requirements(unpack(options.sdist, directory / "source")), versions, wheels)
        if options.zipapp:
            shutil.copyfile(options.zipapp, wheels / "ompbind.pyz")
        took = [f"{time.monotonic() - begun:4.0f} s  root directories and wheels"]
        for place in places:
            begun = time.monotonic()
            print(f"-- Python {place.version}", flush=True)
            try:
                run_tests(place, options.sdist, wheels, directory)
            except subprocess.CalledProcessError:
                sys.exit(f"Python {place.version}: failed, see above")
            took.append(f"{time.monotonic() - begun:4.0f} s  Python {place.version}")
    print(*took, sep="\n")


if __name__ == "__main__":
    main()
