#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel of what is installed, installs it as a stranger would, and runs a program from elsewhere.

usage: wheel_test.py REPOSITORY FOLDER_OF_LIBRONDE MPIEXEC
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM = """
import pathlib, numpy, ronde
assert ronde.__file__.startswith({site!r}), ronde.__file__
library = pathlib.Path(ronde._library.LIBRARY._name)
assert library.parent == pathlib.Path(ronde.__file__).parent / "lib", library
ronde.init()
result = ronde.allreduce(numpy.full(3, float(ronde.rank())), name="x", op=ronde.Sum)
assert result.tolist() == [sum(range(ronde.size()))] * 3, result
print(f"{{ronde.__version__}} works on {{ronde.size()}} ranks")
"""


def run(*command, **options):
    done = late.run(command, 100, stderr=subprocess.STDOUT, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def main():
    repository, libraries, mpiexec = sys.argv[1:]
    make = pathlib.Path(repository) / "bindings/python/make_wheel.py"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        wheel = run(sys.executable, "-B", make, libraries, folder / "one").strip()
        again = run(sys.executable, "-B", make, libraries, folder / "two").strip()
        assert pathlib.Path(wheel).read_bytes() == pathlib.Path(again).read_bytes(), "two wheels of one source differ"
        # A pip of its own takes the environment longer than all the rest: one that sees the system's needs none.
        without = ["--without-pip"] if importlib.util.find_spec("pip") else []
        run(sys.executable, "-m", "venv", "--system-site-packages", *without, folder / "venv")
        python = folder / "venv/bin/python3"
        run(python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", wheel)
        stranger = {key: value for key, value in os.environ.items() if key not in ("LIBRONDE", "PYTHONPATH")}
        program = PROGRAM.format(site=str(folder / "venv"))
        alone = run(python, "-c", program, cwd=folder, env=stranger)
        assert alone.endswith("works on 1 ranks\n"), alone
        job = run(mpiexec, "--bind-to", "none", "--oversubscribe", "-np", "2", python, "-c", program, cwd=folder,
                  env=stranger)
        assert job.count("works on 2 ranks") == 2, job
        # Its own ronderun, with nothing of this build in the path.
        launched = run(folder / "venv/bin/ronderun", "-np", "2", python, "-c", program, cwd=folder, env=stranger)
        assert launched.count("works on 2 ranks") == 2, launched
        if importlib.util.find_spec("cloudpickle"):
            called = "import ronde; print(ronde.run(lambda: (ronde.init(), ronde.rank())[1], np=2))"
            assert run(python, "-c", called, cwd=folder, env=stranger) == "[0, 1]\n"
        points = "from importlib.metadata import entry_points as e; print(*e(group='torch.distributed.backends'))"
        assert "ronde.torch._backend:register" in run(python, "-c", points, cwd=folder, env=stranger)
        print(alone + job + launched, end="")


if __name__ == "__main__":
    late.end(main)
