"""The image of packaging/Dockerfile, on a base that is made of Debian's packages."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.live.conftest import required
from tests.live.containers import LIMITS

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = ROOT / "packaging/Dockerfile"
DEBIAN = ("bookworm", "http://deb.debian.org/debian")
PIP_SETTINGS = "[global]\nno-index = true\nfind-links = /wheels\n"
"""In a build, pip gets all wheels from a directory: a build needs no network and no certificates."""


def run_quietly(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, **options)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


def make_root(path, *packages):
    """Write a small Debian with `packages` to an archive, in the directory OMPTEST_DEBIAN if that is set."""
    kept = os.environ.get("OMPTEST_DEBIAN")
    archive = Path(kept or path) / f"{'-'.join(packages)}.tar"
    if not archive.exists():
        required("mmdebstrap")
        without = ("doc", "locale", "man")
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in without]
        included = f"--include={','.join(packages)}"
        run_quietly(
            "mmdebstrap", "--variant=essential", included, *options, DEBIAN[0], str(archive), DEBIAN[1]
        )
    return archive


def download_wheels(directory):
    """Download what builds ompbind, and what it imports."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*settings["build-system"]["requires"], *settings["project"]["dependencies"]]
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:")
    run_quietly(*pip, "--dest", str(directory), *wanted)


def build_image(podman, directory):
    """Build the image `ompbind` on the base `debian`."""
    archive = make_root(directory, "python3", "python3-venv")
    run_quietly(*podman, "import", str(archive), "debian")
    wheels, settings = directory / "wheels", directory / "pip.conf"
    download_wheels(wheels)
    settings.write_text(PIP_SETTINGS)
    volumes = ("--volume", f"{wheels}:/wheels:ro", "--volume", f"{settings}:/etc/pip.conf:ro")
    base = ("--build-arg", "BASE=localhost/debian")
    how = ("--isolation=oci", "--network=none", "--layers=false", *LIMITS, *volumes, *base)
    run_quietly(*podman, "build", *how, "--file", str(DOCKERFILE), "--tag", "ompbind", str(ROOT))
