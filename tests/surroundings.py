"""Run the README's two commands, `make demo` and `make test`, in many surroundings; takes Debian and root.

    python tests/surroundings.py [NAME…]

Each surrounding is a row of a table. It has a fresh clone of the last commit, a home directory, an
environment without any variable of the caller, and namespaces for mounts and processes. What a row makes
vanishes with them. pip installs from a directory of wheels, which the Python that runs this script downloads.
"""

import argparse
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".venv/surroundings"
PYTHON = "/usr/bin/python3"
SYSTEM = os.path.basename(os.path.realpath(PYTHON)).removeprefix("python")
"""The version of Debian's Python."""

LIMIT_S = 45 * 60
"""The longest time of one command."""

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
USER = 1234
"""An ordinary user. Its name exists only in the surroundings that make it."""

DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
KEYRING = "usr/share/keyrings/ubuntu-archive-keyring.gpg"
"""Ubuntu's keys, in the package ubuntu-archive-keyring of Debian."""

DEMO, TEST = "make demo", "make test"
VERBS = ".venv/bin/python -m pytest -q --part verbs tests/packaging"
OTHER_PYTHON = (
    ".venv/bin/python -W error -m compileall -q -f ompbind docs/examples",
    VERBS,
    "make zipapp",
    f"OMPTEST_COMMAND='python3 -I -S dist/ompbind.pyz' {VERBS}",
)
"""What a Python runs besides: it compiles all modules, and tries each verb, from the wheel and the zipapp."""


class Surrounding(NamedTuple):
    """What a surrounding is, and how to make it.

    `make` are shell commands of root before the README's commands, in their directory and namespaces, where
    "$@" is the next command, $place an empty directory, and $home the home directory. A value None in
    `variables` unsets a variable. `suite` is a release of Debian or Ubuntu, of whose `packages` a root
    directory is made; not if this machine has the version `python`.
    """

    what: str
    make: str = ""
    user: int = 0
    umask: int = 0o022
    directory: str = "ompbind"
    variables: Mapping[str, str | None] = {}
    is_sdist: bool = False
    suite: str = ""
    packages: str = ""
    python: str = ""


NAMED = f"""
sed "\\$a tester:x:{USER}:{USER}::$home:/bin/sh" /etc/passwd >"$place/passwd"
sed "\\$a tester:x:{USER}:" /etc/group >"$place/group"
for name in passwd group; do mount --bind "$place/$name" "/etc/$name"; done
"""
PRIVATE_PYTHON = f"""
if [ ! -e "$place/private" ]; then
    mkdir -m 700 "$place/private"
    mkdir "$place/private/bin" "$place/private/lib"
    cp "$(readlink -f {PYTHON})" "$place/private/bin/python3"
    cp -a "$({PYTHON} -c 'import os; print(os.path.dirname(os.__file__))')" "$place/private/lib"
fi
export PATH="$place/private/bin:$PATH"
"""
WITHOUT_COMPILER = """
mkdir -p "$place/usr"
mount -t tmpfs tmpfs "$place/usr"
mkdir "$place/usr/upper" "$place/usr/work"
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$place/usr/upper,workdir=$place/usr/work" /usr
rm -f /usr/bin/*gcc* /usr/bin/cc /usr/bin/c[89]9 /usr/bin/clang*
rm -f /usr/lib/*/libgomp.so* /usr/lib/gcc/*/*/libgomp.*
ldconfig
"""
QUOTA = """
if [ -d /sys/fs/cgroup/cpu ]; then cgroup=/sys/fs/cgroup/cpu name=cpu.cfs_quota_us text=150000
else cgroup=/sys/fs/cgroup name=cpu.max text="150000 100000"; fi
mkdir -p "$cgroup/surroundings"
echo "$text" >"$cgroup/surroundings/$name"
echo 0 >"$cgroup/surroundings/cgroup.procs"
"""
TMPFS = """
mkdir -p "$place/other"
mount -t tmpfs -o mode=1777,size=100m tmpfs "$place/other"
export TMPDIR="$place/other"
"""
PTRACE, PIDFD_OPEN = 101 if os.uname().machine == "x86_64" else 117, 434
SECCOMP = "".join(
    f'set -- {PYTHON} "$PWD/tests/live/sandboxed.py" 1 {number} -- "$@"\n' for number in (PTRACE, PIDFD_OPEN)
)
CHROOT = 'mkdir -p "$place/all"; mount --rbind / "$place/all"; set -- chroot "$place/all" "$@"'
LONG_PATH = "it's a path für tests/"
"""The start of a directory: the path of the clone has 120 characters."""

NAMELESS = {"LC_ALL": "C", "LANG": None, "HOME": None, "USER": None}
SET = "OMP_NUM_THREADS=3 GOMP_CPU_AFFINITY=0 KMP_AFFINITY=disabled OMPBIND_VERBOSE=1 PYTHONOPTIMIZE=1"
SET += " PYTHONPATH=/nonexistent PYTHONUNBUFFERED=1 MAKEFLAGS=-j8"

TABLE = {
    "private-python": Surrounding("root, with a Python below a directory of mode 700", PRIVATE_PYTHON),
    "user-long-path": Surrounding(
        "an ordinary user, umask 077, a path with a space, an apostrophe and ü", NAMED, USER, umask=0o077,
        directory=LONG_PATH,
    ),
    "unnamed-user": Surrounding("LC_ALL=C, no HOME, a uid without a name", user=4321, variables=NAMELESS),
    "no-compiler": Surrounding("no gcc, no libgomp", WITHOUT_COMPILER),
    "minimal": Surrounding(
        "Debian with only Python, venv and make", suite="bookworm", packages="python3,python3-venv,make"
    ),
    "sdist": Surrounding("the source distribution, without a git directory", is_sdist=True),
    "one-cpu": Surrounding("one CPU", f"taskset -p -c {min(os.sched_getaffinity(0))} $$ >/dev/null"),
    "quota": Surrounding("a CPU quota of 150 %", QUOTA),
    "small-tmpdir": Surrounding("a TMPDIR of 100 MB on another file system", TMPFS),
    "busy": Surrounding("four busy processes", "for busy in 1 2 3 4; do while :; do :; done & done"),
    "variables": Surrounding(
        "variables of OpenMP, Python and make", variables=dict(word.split("=", 1) for word in SET.split())
    ),
    "hidepid": Surrounding("hidepid=2", NAMED + "mount -o remount,hidepid=2 /proc", USER),
    # The kernel gives no user namespace to a process in a changed root directory
    "no-user-namespaces": Surrounding("user namespaces forbidden", NAMED + CHROOT, USER),
    "no-cgroups": Surrounding("no cgroup file system", "umount --recursive --lazy /sys/fs/cgroup"),
    "seccomp": Surrounding("seccomp forbids ptrace and pidfd_open", SECCOMP),
    **{
        f"python{version}": Surrounding(
            f"Python {version}", suite=suite, packages=f"{venv},libgomp1,make,procps", python=version
        )
        for version, suite, venv in (
            ("3.11", "bookworm", "python3-venv"), ("3.12", "noble", "python3.12-venv"),
            ("3.13", "trixie", "python3.13-venv"), ("3.14", "forky", "python3.14-venv"),
            ("3.15", "forky", "python3.15-venv"),
        )
    },
}  # fmt: skip
"""Each surrounding."""

# A shell is process 1, and waits for orphans. A root directory becomes the root of all processes.
ENTER = """
set -e
if [ -n "$root" ]; then
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc proc proc
    mount --rbind /sys sys
    mount --rbind /dev dev
    mount -t tmpfs tmpfs run
    mount --bind "$wheels" opt
    pivot_root . mnt
    umount --lazy /mnt
else
    mkdir -p "$place/tmp"
    chmod 1777 "$place/tmp"
    mount --bind "$place/tmp" /tmp
fi
cd "$clone"
"""
NAMESPACES = (
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"
)  # fmt: skip


def find_python(version: str) -> str | None:
    """Return a directory of this machine in which `python3` has a version: Debian's, or pyenv's."""
    found = glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python3"))
    if version == SYSTEM:
        found = [PYTHON]
    return os.path.dirname(max(found)) if found else None


def make_root(row: Surrounding, directory: Path) -> None:
    """Unpack packages of Debian or Ubuntu into an empty directory. Raises CalledProcessError, OSError."""
    # Mirrors may be older than the week for which Debian signs releases in development
    options = ('--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "5"')
    mmdebstrap = ("mmdebstrap", "--quiet", *options)
    source, of = DEBIAN, ["--components=main"]
    if row.suite == "noble":
        keys = directory.with_name("keys")
        keyring = ("--variant=extract", "--include=ubuntu-archive-keyring")
        subprocess.run([*mmdebstrap, *keyring, "forky", keys, DEBIAN], check=True)
        source, of = UBUNTU, ["--components=main,universe", f"--keyring={keys / KEYRING}"]
    of += ["--variant=minbase", f"--include={row.packages}"]
    subprocess.run([*mmdebstrap, *of, row.suite, directory, source], check=True)
    if row.python:
        (directory / "usr/local/bin/python3").symlink_to(f"/usr/bin/python{row.python}")


def download_wheels(versions: set[str], wheels: Path) -> None:
    """Download what `make test` and `make zipapp` install, for some Pythons. Raises CalledProcessError."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = (*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["dev"])
    # The build back end asks for `editables` when it installs a directory as editable
    wanted = (*wanted, *project["build-system"]["requires"], "editables")
    pip = [sys.executable, "-m", "pip", "-qq", "download", "--dest", str(wheels), "--only-binary=:all:"]
    for version in sorted(versions):
        subprocess.run([*pip, "--python-version", version, *wanted], check=True)
    subprocess.run([*pip, "--no-deps", "-r", str(ROOT / "packaging/zipapp.txt")], check=True)


def make_place(name: str, row: Surrounding, base: Path) -> dict[str, str]:
    """Make the directories of a surrounding, and return the variables that its shell scripts have for them.

    Raises CalledProcessError, OSError.
    """
    place, root = base / name, ""
    place.mkdir()
    path = find_python(row.python) if row.python else ""
    if row.suite and not path:
        root, path = f"{place}/root", "/usr/local/bin"
        make_root(row, Path(root))
    directory = "/srv" if root else str(place)
    clone = f"{directory}/home/{row.directory}"
    clone = clone.ljust(120, "x") if row.directory == LONG_PATH else clone
    outside, home = f"{root}{clone}", Path(f"{root}{directory}/home")
    home.mkdir()
    source = f"{place}/source" if row.is_sdist else outside
    # Files of a clone with links would also be files of this repository
    git = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), source]
    subprocess.run(git, check=True, umask=row.umask)
    if row.is_sdist:
        build = [sys.executable, "-m", "build", "--quiet", "--sdist", "--outdir", str(place), source]
        subprocess.run(build, check=True)
        os.mkdir(outside)
        sdist = str(next(place.glob("*.tar.gz")))
        unpack = ["tar", "-xf", sdist, "--strip-components=1", "-C", outside]
        subprocess.run(unpack, check=True, umask=row.umask)
    subprocess.run(["chown", "-R", f"{row.user}:{row.user}", home], check=True)
    home.chmod(0o700 if row.user else 0o777 & ~row.umask)
    return {
        "PATH": f"{path}:{PATH}".lstrip(":"), "root": root, "wheels": f"{base}/wheels", "place": directory,
        "home": f"{directory}/home", "clone": clone,
    }  # fmt: skip


def run_command(row: Surrounding, env: dict[str, str], command: str, log: Path) -> str:
    """Run a command in a surrounding and append its output to a file; return what is wrong, or ""."""
    variables = {
        "HOME": env["home"], "USER": "tester" if row.user else "root", "LANG": "C.UTF-8", "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/opt" if env["root"] else env["wheels"], **row.variables,
    }  # fmt: skip
    words = shlex.join(f"{name}={value}" for name, value in variables.items() if value is not None)
    who = f"setpriv --reuid={row.user} --regid={row.user} --clear-groups" if row.user else ""
    # `make` may set PATH and TMPDIR. A line follows, so that the shell stays and waits for orphans.
    kept = '--chdir="$clone" "PATH=$PATH" ${TMPDIR:+"TMPDIR=$TMPDIR"}'
    last = f'"$@" {who} env -i {kept} {words} sh -c {shlex.quote(command)}\nexit 0'
    script = "\n".join((ENTER, row.make, f"umask {row.umask:03o}", last))
    with log.open("ab") as file:
        try:  # without `unshare`, which is killed after the limit, there is no process 1, and no other
            code = subprocess.run(
                [*NAMESPACES, "sh", "-c", script], env=env, start_new_session=True, timeout=LIMIT_S,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"not finished in {LIMIT_S} s"
    return f"exit code {code}" if code else ""


def run_surrounding(name: str, base: Path) -> bool:
    row, log, took, wrong = TABLE[name], LOGS / f"{name}.log", [], ""
    print(f"== {name}: {row.what}", flush=True)
    log.write_bytes(b"")
    try:
        env = make_place(name, row, base)
        for command in (DEMO, TEST, *(OTHER_PYTHON if row.python else ())):
            begun = time.monotonic()
            wrong = run_command(row, env, command, log)
            took.append(f"{command} {time.monotonic() - begun:.0f} s")
            if wrong:
                break
    except (OSError, subprocess.CalledProcessError) as error:
        wrong = f"it cannot be made: {error}"
    finally:
        shutil.rmtree(base / name, ignore_errors=True)
        for left in ("/sys/fs/cgroup/cpu/surroundings", "/sys/fs/cgroup/surroundings"):
            if os.path.exists(left):
                os.rmdir(left)
    output = log.read_text(errors="replace")
    counts = re.findall(r"^=+ (.* in [\d.]+s.*?) =+$", output, re.M)
    failures = re.findall(r"^(?:FAILED|ERROR) .*", output, re.M)
    if wrong and not failures:
        failures = output.splitlines()[-5:]
    result = f"failed: {wrong}" if wrong else "passed"
    print(", ".join((result, *took, *counts[:1])), *failures, sep="\n", flush=True)
    return not wrong


def main() -> None:
    listed = "\n".join(f"{name:20} {row.what}" for name, row in TABLE.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], epilog=f"surroundings, all by default:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names or [*TABLE]
    if unknown := sorted({*names} - {*TABLE}):
        parser.error(f"no surrounding {', '.join(unknown)}; --help lists all")
    if os.geteuid() != 0:
        parser.error("making surroundings takes root")
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"the output of the commands: {LOGS}/NAME.log", flush=True)
    # Not below /tmp: each surrounding has its own
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as base:
        os.chmod(base, 0o755)
        versions = {TABLE[name].python or ("3.11" if TABLE[name].suite else SYSTEM) for name in names}
        download_wheels(versions, Path(base, "wheels"))
        failed = [name for name in names if not run_surrounding(name, Path(base))]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
