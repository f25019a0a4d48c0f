#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MPI and programs of other people, against the installed files: libronde.so has none of it; a process that needs
none loads none; a program with a communicator of its own links ronde::mpi; one that is linked with another MPI than
the plug-in's is refused in one line that names both; and without the plug-in a job says what is missing.

usage: check.py CMAKE CXX PREFIX MPIRUN FAKE_MPICH WORK_FOLDER
"""
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

SECONDS = 120
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(line, **variables):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMPI_", "PMI", "RONDE_"))}
    return late.run(line, SECONDS, env={**environment, **ROOT, **variables})


def expect(condition, done, what):
    if not condition:
        sys.exit(f"{what}: exit code {done.returncode} of {done.args}\n{done.stdout}\n{done.stderr}")


def loaded(program, **variables):
    """The libraries that the loader brings into a process of the program."""
    done = run([program], LD_DEBUG="files", **variables)
    expect(done.returncode == 0, done, "the program failed")
    lines = [line for line in done.stderr.splitlines() if "calling init: " in line]
    return {pathlib.PurePath(line.rsplit("calling init: ", 1)[1]).name for line in lines}


def main():
    cmake, cxx, prefix, mpirun, fake, work = map(pathlib.Path, sys.argv[1:])
    here = pathlib.Path(__file__).resolve().parent
    shutil.rmtree(work, ignore_errors=True)
    for line in ([cmake, "-S", here, "-B", work, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={cxx}",
                  f"-DCMAKE_PREFIX_PATH={prefix}", f"-DJOB_OF_ONE={here.parent / 'cpp' / 'job_of_one.cc'}"],
                 [cmake, "--build", work]):
        done = run(line)
        expect(done.returncode == 0, done, "the project does not build")
    start = [mpirun, "--bind-to", "none", "--oversubscribe", "-np", "4"]

    done = run([*start, work / "own_communicator"])
    expect(done.returncode == 0 and done.stdout.count("2 of 2 ranks") == 4, done, "its own communicator")

    # Alone it needs no MPI, and loads none; as a rank of MPI it does.
    alone = loaded(work / "no_mpi")
    if "libronde.so.0.1" not in {name[:15] for name in alone} or any(name.startswith("libmpi") for name in alone):
        sys.exit(f"a job of one loaded {sorted(alone)}")
    rank = loaded(work / "no_mpi", OMPI_COMM_WORLD_SIZE="1")
    if not any(name.startswith("libmpi.so") for name in rank) or "libronde_mpi.so" not in rank:
        sys.exit(f"a rank of MPI's loaded only {sorted(rank)}")

    # Another MPI, which the program has started.
    done = run([work / "no_mpi"], LD_PRELOAD=str(fake))
    lines = done.stderr.splitlines()
    expect(done.returncode != 0 and len(lines) == 1, done, "another MPI is not refused in one line")
    expect(all(word in lines[0] for word in ("MPICH Version: 4.0.2", "Open MPI v", "libronde_mpi.so")), done,
           "the line does not name both")

    # Without the plug-in, as in a build without MPI.
    empty = work / "no plug-ins"
    empty.mkdir()
    done = run([*start, work / "no_mpi"], RONDE_TRANSPORT_PATH=str(empty))
    expect(done.returncode != 0 and "RONDE_WITH_MPI=ON" in done.stderr and str(empty) in done.stderr, done,
           "a job over MPI without the plug-in")
    done = run([work / "no_mpi"], RONDE_TRANSPORT_PATH=str(empty))
    expect(done.returncode == 0, done, "alone it needs no plug-in")
    done = run([mpirun, "-np", "1", work / "no_mpi"], RONDE_TRANSPORT_PATH=str(empty))
    expect(done.returncode == 0, done, "one rank of mpirun needs no plug-in")
    # A program that has started MPI itself joins its ranks, and without the plug-in it must not train alone unnoticed.
    done = run([work / "started_mpi"])
    expect(done.returncode == 0 and "1 rank" in done.stdout, done, "a program that has started MPI")
    done = run([work / "started_mpi"], RONDE_TRANSPORT_PATH=str(empty))
    lines = done.stderr.splitlines()
    expect(done.returncode != 0 and len(lines) == 1, done, "it is not refused in one line without the plug-in")
    expect(all(word in lines[0] for word in ("the program has started MPI (Open MPI v", str(empty), "RONDE_ALONE=1")),
           done, "the line does not say what is missing and what to do")
    done = run([work / "started_mpi"], RONDE_TRANSPORT_PATH=str(empty), RONDE_ALONE="1")
    expect(done.returncode == 0 and "1 rank" in done.stdout, done, "RONDE_ALONE=1 is the way out")
    print("MPI is a plug-in, and only for those that need it")


if __name__ == "__main__":
    late.end(main)
