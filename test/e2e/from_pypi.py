# SPDX-License-Identifier: Apache-2.0
"""Libraries from PyPI for tests of ./dev test full, in a folder of the user's cache that is made once."""

import os
import pathlib
import shutil
import subprocess
import sys

INSIDE = "RONDE_TEST_FROM_PYPI"  # set where the libraries are there


def enter(name, packages):
    """Starts the script again with a Python that has the libraries, unless this is one."""
    if os.environ.get(INSIDE) == name:
        return
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = cache / "ronde" / (name + "-" + "-".join(package.replace("==", "-") for package in packages))
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"install {' '.join(packages)} into {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
                       check=True)
        (folder / "complete").touch()
    os.execve(python, [str(python), "-B", *sys.argv], {**os.environ, INSIDE: name})
