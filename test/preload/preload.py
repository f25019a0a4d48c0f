#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that knows only MPI, with and without libronde_mpi_allreduce.so.

usage: preload.py PROGRAMS COUNTER LIBRARY MPIEXEC RONDERUN CASE...        PROGRAMS: the folder of mpi_stock and the others
"""
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "hosts"))
import hosts_job  # noqa: E402
from hosts_job import late  # noqa: E402

PROGRAMS, COUNTER, LIBRARY, MPIEXEC, RONDERUN = sys.argv[1:6]
STOCK, DUPLICATES, UNEVEN = (os.path.join(PROGRAMS, f"mpi_{name}") for name in ("stock", "stock_duplicates", "uneven"))
PARTS = ["types", "passed", "duplicates", "requests", "order"]
# What MPI itself gets of these parts: the first eight calls of MPI_COMM_WORLD, the nine of `passed`, two that agree on the
# threshold, one on the engine, and one in which all ranks leave each of nine duplicates.
LEFT_TO_MPI = "MPI had 29 and 0"
TAKEN = "go through Ronde"
OTHER = 16  # Open MPI's MPI_ERR_OTHER
SETTINGS = {"RONDE_MPI_ALLREDUCE_BYTES": "40000"}  # so that types of one byte are taken over too


def job(ranks, parts, preload=(COUNTER, LIBRARY), settings=None, command=None, program=STOCK, seconds=200):
    """The result of the parts of a program; the settings are of every rank."""
    settings = {**SETTINGS, **(settings or {})}
    if preload:
        settings["LD_PRELOAD"] = ":".join(preload)
    exports = [word for name, value in settings.items() for word in ("-x", f"{name}={value}")]
    line = command or [MPIEXEC, "--bind-to", "none", "--oversubscribe", "-np", str(ranks), *exports, program, *map(str, parts)]
    return late.run(line, seconds)


def expect(condition, done, what):
    hosts_job.expect(condition, done, what)


def expect_right(done, parts, taken=True):
    expect(done.returncode == 0, done, "the program fails")
    expect(re.findall(r"^(\w+) ok$", done.stdout, re.MULTILINE) == parts, done, f"expected {parts}")
    expect(done.stderr.count(TAKEN) == (1 if taken else 0), done, "the library says once what it does")


def plain():
    expect_right(job(2, PARTS + ["many"], preload=()), PARTS + ["many"], taken=False)


def ranks(number):
    done = job(number, PARTS)
    expect_right(done, PARTS)
    expect(done.stdout.count(LEFT_TO_MPI) == number, done, f"expected of each rank: {LEFT_TO_MPI}")


def many():
    done = job(2, ["many"], settings={"STOCK_THREADS": "3"})  # MPI_THREAD_MULTIPLE
    expect_right(done, ["many"])
    expect(done.stdout.count("MPI had 11 and 0") == 2, done, "MPI gets what agrees on the engine")


def first():
    """Requests and others count alike, and a request that comes before there is an engine may not wait for one."""
    # Without a copy by the kernel MPI's sender must move a large message on, inside a reduction too.
    done = job(2, ["order"], settings={"OMPI_MCA_btl_vader_single_copy_mechanism": "none"})
    expect_right(done, ["order"])
    expect(done.stdout.count("MPI had 7 and 5") == 2, done, "the first eight calls and the ninth, a request, are MPI's")


def killed():
    for part, call in ("killed", "MPI_Allreduce"), ("killed_small", "MPI_Bcast"):
        done = job(3, [part], preload=(LIBRARY,))
        expect(done.returncode != 0, done, "a rank was killed")
        expect(re.search(rf"^ronde: {call}: rank 2 \(.*\) died", done.stderr, re.MULTILINE), done,
               "a line says which rank died")


def lines():
    """Small calls by the library's default: MPI gets what comes before there is an engine, and what agrees on it."""
    for number in 2, 3:
        done = job(number, ["lines"], settings={"RONDE_MPI_ALLREDUCE_BYTES": ""})
        expect_right(done, ["lines"])
        # One of each agrees on the engine, and one of each for each of two duplicates; thirty more broadcasts are large.
        expect(done.stdout.count("MPI had 33 broadcasts and 3 barriers") == number, done, "small calls go to no MPI")


def late_rank():
    # Under load an engine opens in less than the five seconds, and the late rank comes after six.
    done = job(2, ["late"], settings={"RONDE_START_TIMEOUT_SECONDS": "5"})
    expect_right(done, ["late"])


def refused():
    """Where Ronde cannot serve a program MPI does, on all ranks, and a line says why."""
    for settings, reason in (({"RONDE_MPI": "off"}, "RONDE_MPI=off"),
                             ({"RONDE_ALGORITHM": "ring"}, "without threads in MPI")):
        done = job(2, ["types", "requests"], settings=settings)
        expect_right(done, ["types", "requests"], taken=False)
        expect(len(re.findall(f"^ronde: .*MPI's: .*{reason}", done.stderr, re.MULTILINE)) == 1, done, f"expected {reason}")
    # 1,000,000 bytes are above every vector here: the ranks would take different ways at once.
    part = ["-np", "1", "-x", f"LD_PRELOAD={LIBRARY}"]
    done = job(2, [], command=[MPIEXEC, "--bind-to", "none", "--oversubscribe", *part, STOCK, "types", ":", *part, "-x",
                               "RONDE_MPI_ALLREDUCE_BYTES=1000000", STOCK, "types"])
    expect_right(done, ["types"], taken=False)
    expect("differs between ranks" in done.stderr, done, "expected a line that names the setting")


def launched():
    done = job(2, [], command=[RONDERUN, "-np", "2", "--accelerate-mpi", STOCK, "duplicates"])
    expect_right(done, ["duplicates"])


ENGINE = re.compile(r"^rank \d: an engine had (\d+) by name and (\d+) planned$", re.MULTILINE)


def engines(number, parts, most=None, **settings):
    """Parts in which all communicators share an engine, whose names are few: `most` by name."""
    for part in parts:
        done = job(number, [part], program=DUPLICATES, **settings)
        expect_right(done, [part])
        found = ENGINE.findall(done.stdout)
        expect(len(found) == number, done, "expected one engine")
        expect(most is None or all(int(by_name) <= most for by_name, _ in found), done, f"expected {most} names at most")


def duplicates():
    parts = ["ninth", "shared", "free_order", "many", "loop", "others"]
    done = job(2, parts, program=DUPLICATES, preload=())
    expect_right(done, parts, taken=False)
    engines(2, ["ninth", "shared", "free_order", "many", "others"])
    engines(3, ["shared", "others"])
    engines(2, ["loop"], most=40)
    done = job(2, ["threads"], program=DUPLICATES, settings={"STOCK_THREADS": "3"})  # MPI_THREAD_MULTIPLE
    expect_right(done, ["threads"])


def expect_seen(done, number, calls=6):
    """The calls that differ have come back on every rank, and the calls after them are right."""
    found = re.findall(r"^class other after (\S+) s$", done.stdout, re.MULTILINE)
    expect(len(found) == calls * number, done, "expected MPI_ERR_OTHER of every call on every rank")
    for seconds in found:
        late.at_most(float(seconds), 1, "a call that differs")
    expect("equal again" in done.stdout, done, "the engine lives on")


def uneven():
    """Calls that differ end the job, or come back as errors: from the ninth on as soon as all ranks are there."""
    # The first eight are MPI's, which looks at the length of a message that the kernel has not copied.
    copies = {"OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    for before in 0, 8:
        for count in 50000, 1000:
            done = job(2, [before, count, 100000], preload=(LIBRARY,), settings=copies, program=UNEVEN, seconds=60)
            expect(done.returncode != 0, done, "the ranks differ")
            # mpirun may lose the text where all ranks end at once, and has the error as its exit code then.
            expect(before == 0 or done.returncode == OTHER or "MPI_ERR_OTHER" in done.stderr, done, "expected MPI_ERR_OTHER")
            expect(before == 0 or re.search(f"^ronde: MPI_Allreduce: .*the ranks disagree: .*{count}", done.stderr, re.MULTILINE),
                   done, "expected a line that says how they differ")
    # Both Ronde's, both MPI's, and one of each, by either rank; of three ranks one differs.
    for number, count, others in ((2, 50000, 100000), (2, 0, 1000), (2, 1000, 100000), (3, 100000, 1000), (3, 500, 1000)):
        done = job(number, [20, count, others, "return"], preload=(LIBRARY,), program=UNEVEN, seconds=60)
        expect_seen(done, number)
    # By the default small ones are summed where they meet.
    done = job(3, [20, 500, 400, "return"], preload=(LIBRARY,), settings={"RONDE_MPI_ALLREDUCE_BYTES": ""}, program=UNEVEN)
    expect_seen(done, 3)


def planned():
    """Loops of equal calls, and of unequal ones, send no names."""
    engines(2, ["steady"], most=40)


def hosts():
    """Over two hosts Ronde's threads need MPI_THREAD_MULTIPLE, which the program has not asked for."""
    os.environ.update(SETTINGS)
    shape = hosts_job.Job("2:2")
    flags = ["--mpirun=-x", f"--mpirun=LD_PRELOAD={COUNTER}:{LIBRARY}"]
    done = shape.run(STOCK, *PARTS, settings=SETTINGS, seconds=200, flags=flags)
    expect_right(done, PARTS)
    expect(done.stdout.count(LEFT_TO_MPI) == 4, done, f"expected of each rank: {LEFT_TO_MPI}")
    done = shape.run(UNEVEN, 20, 50000, 100000, "large", settings=SETTINGS, seconds=20, flags=flags)
    expect_seen(done, 4, calls=2)


def main():
    for case in sys.argv[6:]:
        if case.isdigit():
            ranks(int(case))
        else:
            {"plain": plain, "many": many, "first": first, "killed": killed, "late": late_rank, "lines": lines, "refused": refused,
             "launched": launched, "duplicates": duplicates, "planned": planned,
             "uneven": uneven, "hosts": hosts}[case]()
        print(f"{case}: right")


if __name__ == "__main__":
    late.end(main)
