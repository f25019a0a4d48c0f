#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end checks of ronde-perf, small: that it measures, verifies and reports, not how fast.

    perf.py CHECK PROGRAM MPIRUN

runs one check (see CHECKS). Exit code 0: it holds.
"""

import csv
import io
import json
import os
import pathlib
import sys
import tempfile
import xml.etree.ElementTree

from programs import ERROR_SECONDS, expect, late, start

RUN_SECONDS = 100
SMALL = ["-n", "3", "-w", "1", "--repetitions", "2"]
SAMPLE_KEYS = ("operation model tensors bytes count dtype op root in_place contender repetition iterations "
               "min_us p50_us p99_us mean_us algbw busbw wrong c2c_before_ns c2c_after_ns").split()
SUMMARY_KEYS = ("operation model tensors bytes count dtype op root in_place contender median_us min_us max_us "
                "mean_us p99_us algbw busbw wrong ratio_to_ronde ratio_min ratio_max c2c_min_ns "
                "c2c_max_ns").split()
OPERATIONS = ("allreduce", "broadcast", "allgather", "reduce_scatter", "all_to_all", "barrier")


class Perf:
    """Starts ronde-perf."""

    def __init__(self, program, mpirun):
        self.program = program
        self.mpirun = mpirun

    def run(self, *flags, ranks=1, settings=None):
        """One rank runs without mpirun."""
        if ranks == 1:
            return start([self.program, *flags], RUN_SECONDS, settings)
        return self.run_parts([[*flags]] * ranks, settings)

    def run_parts(self, parts, settings=None):
        """One mpirun of a rank for each list of flags."""
        line = [self.mpirun, "--bind-to", "none", "--oversubscribe"]
        for i, flags in enumerate(parts):
            line += ([":"] if i else []) + ["-np", "1", self.program, *flags]
        return start(line, RUN_SECONDS, settings)


def read_json(done, code=0):
    expect(done.returncode == code, done, f"expected exit code {code}")
    try:
        document = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise AssertionError(f"{error}\n{done.stdout}\n{done.stderr}") from None
    expect(list(document) == ["schema", "machine", "options", "samples", "summary"], done, "other keys")
    expect(document["schema"] == 1, done, "another schema")
    for rows, keys in ((document["samples"], SAMPLE_KEYS), (document["summary"], SUMMARY_KEYS)):
        expect(rows, done, "no rows")
        for row in rows:
            expect(list(row) == keys, done, f"other keys: {list(row)}")
    return document


def check_json(perf):
    """Everything that was asked for is there, and right, on 1, 2 and 3 ranks."""
    for ranks in (1, 2, 3):
        done = perf.run("-b", "8", "-e", "64K", "-f", "128", *SMALL, "--against", "mpi,mpi-best,memcpy,floor",
                        "--json", "-", ranks=ranks)
        document = read_json(done)
        expect(document["machine"]["ranks"] == ranks, done, "another number of ranks")
        expect("--against" in document["options"]["command"], done, "the command is not recorded")
        rows = {(row["bytes"], row["in_place"], row["contender"]) for row in document["summary"]}
        wanted = {(size, place, name) for size in (8, 1024, 65536) for place in (True, False)
                  for name in ("ronde", "mpi", "mpi-best", "memcpy", "floor")}
        expect(rows == wanted, done, f"rows {rows ^ wanted}")
        expect(len(document["samples"]) == 2 * len(wanted), done, "not two samples for each row")
        for row in document["summary"]:
            expect(row["wrong"] == 0, done, f"wrong elements: {row}")
            expect(0 < row["min_us"] <= row["median_us"] <= row["max_us"], done, f"times: {row}")
            expect(row["ratio_to_ronde"] > 0, done, f"ratio: {row}")
        in_turns(document, done)
        expect(document["machine"]["mpi_best"] == "segmented_ring, segments of 262144 bytes", done,
               "mpi-best is something else")
        expect("# wrong elements: 0" in done.stderr, done, "no table on standard error")


def in_turns(document, done):
    """The samples are in the order in which they were taken: contenders in turns, another first each time."""
    samples = document["samples"]
    contenders = ["ronde", "mpi", "mpi-best", "memcpy", "floor"]
    for begin in range(0, len(samples), 10):
        block = samples[begin:begin + 10]
        expect(len({(row["bytes"], row["in_place"]) for row in block}) == 1, done, "sizes are mixed")
        expect([row["repetition"] for row in block] == 5 * [0] + 5 * [1], done, "repetitions are mixed")
        expect([row["contender"] for row in block] == contenders + contenders[1:] + contenders[:1], done,
               "the contenders do not take turns")
    # The round trip after a sample is the one before the next.
    trips = [samples[0]["c2c_before_ns"]] + [row["c2c_after_ns"] for row in samples]
    expect([row["c2c_before_ns"] for row in samples] == trips[:-1], done, "round trips do not follow")
    if len(os.sched_getaffinity(0)) > 1:
        expect(all(trip is not None and trip > 0 for trip in trips), done, "round trips of no time")


def check_operations(perf):
    """Every operation in every dtype and op gives what it should."""
    for ranks in (1, 2, 3):
        for operation in OPERATIONS:
            done = perf.run("--operation", operation, "-b", "600", "-e", "600", "-d", "all", "-o", "all",
                            "-n", "2", "-w", "0", "--repetitions", "1", "--against", "mpi,memcpy",
                            "--json", "-", ranks=ranks)
            document = read_json(done)
            cases = {(row["dtype"], row["op"]) for row in document["summary"] if row["contender"] == "ronde"}
            # 13 dtypes: 4 integers with 8 ops, 4 narrow ones with 7, 4 floating types with 5, bool with 5;
            # moves have no op.
            expected = {"barrier": 1, "allreduce": 85, "reduce_scatter": 85}.get(operation, 13)
            expect(len(cases) == expected, done, f"{operation}: {len(cases)} cases of {expected}")
            for row in document["summary"]:
                expect(row["operation"] == operation and row["wrong"] == 0, done, f"{row}")
    # A contender that cannot do the operation is named once, and not where it can.
    done = perf.run("--operation", "allgather", "-b", "1K", "-e", "2K", "-f", "2", *SMALL,
                    "--against", "mpi,mpi-best,memcpy")
    notes = [line for line in done.stdout.splitlines() if line.endswith("it is left out")]
    expect(notes == [f"# {name} has no allgather: it is left out" for name in ("mpi-best", "memcpy")], done,
           f"notes {notes}")
    for flags, note in ((["--operation", "reduce_scatter", "--place", "in"], "reduce_scatter in place"),
                        (["--operation", "broadcast", "--place", "out"], "broadcast out of place"),
                        (["-d", "half"], "half"), (["-o", "avg"], "avg"),
                        (["--model", "resnet50", "-o", "avg"], "avg")):
        done = perf.run("-b", "1K", "-e", "1K", "-n", "1", "-w", "0", "--repetitions", "1", *flags,
                        "--against", "mpi")
        expect(f"# mpi has no {note}: it is left out" in done.stdout, done, "no note")
    done = perf.run("-b", "1K", "-e", "1K", *SMALL, "--against", "mpi,memcpy")
    expect("left out" not in done.stdout, done, "a note on what was measured")


def check_model(perf):
    with tempfile.TemporaryDirectory() as name:
        picture = pathlib.Path(name) / "bars.svg"
        done = perf.run("--model", "resnet50", "-n", "1", "-w", "1", "--repetitions", "1",
                        "--against", "memcpy", "--json", "-", "--svg", str(picture), ranks=2)
        # Three bars on a ground.
        expect(len(xml.etree.ElementTree.parse(picture).getroot().findall(".//{*}rect")) == 4, done, "not three bars")
    summary = {row["contender"]: row for row in read_json(done)["summary"]}
    expect(set(summary) == {"ronde", "ronde-flat", "memcpy"}, done, "other contenders")
    expect(summary["ronde"]["tensors"] == 161, done, "another number of gradients")
    for row in summary.values():
        expect(row["count"] == 25557032 and row["bytes"] == 4 * 25557032, done, "other sizes")
        expect(row["wrong"] == 0 and row["model"] == "resnet50", done, f"{row}")
    expect("one by one / flat" in done.stderr, done, "the ratio is not printed")


def check_wrong(perf):
    """A wrong result is counted, and fails the run."""
    for ranks in (1, 2):
        for operation in OPERATIONS[:-1]:
            done = perf.run("--operation", operation, "-b", "1K", "-e", "1K", *SMALL, "--place", "out",
                            "--against", "memcpy", "--corrupt", "1", "--json", "-", ranks=ranks)
            for row in read_json(done, code=1)["summary"]:
                # One element on each rank in each of 1 + 3 iterations of 2 repetitions.
                expect(row["wrong"] == 8 * ranks, done, f"miscounted: {row}")
            expect("there are wrong results" in done.stderr, done, "no message")
    done = perf.run("--model", "resnet50", "-n", "1", "-w", "0", "--repetitions", "1", "--against", "memcpy",
                    "--corrupt", "1", "--json", "-", ranks=2)
    for row in read_json(done, code=1)["summary"]:
        expect(row["wrong"] == 2, done, f"miscounted: {row}")
    done = perf.run("-b", "1K", "-e", "1K", *SMALL, "--corrupt", "1", "-c", "0")
    expect(done.returncode == 0, done, "-c 0 checks nothing")


def check_files(perf):
    """Files, the picture, and the comparison with an earlier run."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        flags = ["-b", "8", "-e", "8K", "-f", "8", *SMALL, "--against", "memcpy"]
        done = perf.run(*flags, "--json", str(folder / "a.json"), "--csv", str(folder / "a.csv"),
                        "--svg", str(folder / "a.svg"), ranks=2)
        expect(done.returncode == 0, done, "the first run failed")
        expect("out of place" in done.stdout, done, "no table on standard output")
        document = json.loads((folder / "a.json").read_text())
        table = list(csv.DictReader(io.StringIO((folder / "a.csv").read_text())))
        expect(list(table[0]) == SUMMARY_KEYS, done, "other columns")
        expect(len(table) == len(document["summary"]), done, "the files differ")
        root = xml.etree.ElementTree.parse(folder / "a.svg").getroot()
        expect(len(root.findall(".//{*}polyline")) == 6, done, "not two curves in three panels")

        # The old files stay until the new ones are complete.
        old = (folder / "a.json").read_text()
        done = perf.run("-b", "4M", "-e", "4M", "-n", "1000000", "--timeout", "1", "--json",
                        str(folder / "a.json"))
        expect(done.returncode == 1, done, "expected a run that is given up")
        expect((folder / "a.json").read_text() == old, done, "the old file is gone")
        expect(len(list(folder.iterdir())) == 3, done, "something was left behind")
        check_baseline(perf, folder / "baseline.json")
    for flags in (["-b", "8", "-e", "8", *SMALL], ["--help"]):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = late.run([perf.program, *flags], RUN_SECONDS, stdout=full)
        expect(done.returncode == 1, done, "nobody has seen the output")
        expect(done.stderr == "ronde-perf: standard output could not be written: is there room?\n", done,
               "expected one line")


def check_baseline(perf, baseline):
    flags = ["-b", "8", "-e", "1K", "-f", "8", "-n", "3", "-w", "1", "--against", "memcpy"]
    document = read_json(perf.run(*flags, "--json", "-", ranks=2))
    for factor, code, word in ((1e-6, 0, " 0 worse"), (1e6, 3, "# worse: allreduce")):
        # Earlier ratios as if Ronde had been a million times slower, then faster.
        changed = json.loads(json.dumps(document))
        for row in changed["summary"]:
            for key in ("ratio_to_ronde", "ratio_min", "ratio_max"):
                row[key] *= factor
        baseline.write_text(json.dumps(changed))
        done = perf.run(*flags, "--baseline", str(baseline), ranks=2)
        expect(done.returncode == code, done, f"expected exit code {code}")
        expect(word in done.stdout, done, "no verdict")
    compare = [*flags, "--baseline", str(baseline)]
    refused(perf.run(*compare), 2, "was taken with ranks=2, this run has ranks=1")
    refused(perf.run(*compare, "--buffer", "1", ranks=2), 2, "buffer=false", "buffer=true")
    refused(perf.run(*compare, "--repetitions", "4", ranks=2), 2, "--repetitions 4 is too few")
    refused(perf.run(*compare, "-d", "double", ranks=2), 2, "holds no ratio")
    document["options"]["repetitions"] = 2
    baseline.write_text(json.dumps(document))
    refused(perf.run(*compare, ranks=2), 2, "has 2 repetitions, too few")
    for text, part in (("{}", "cannot be read"), ("no JSON", "is no JSON (line 1")):
        baseline.write_text(text)
        refused(perf.run(*compare, ranks=2), 2, str(baseline), part)
    refused(perf.run(*flags, "--baseline", "/proc/nonexistent/x", ranks=2), 2, "/proc/nonexistent/x cannot be read")


def refused(done, code, *parts):
    """One line of ours with all the parts, soon."""
    expect(done.returncode == code, done, f"expected exit code {code}")
    late.at_most(done.seconds, ERROR_SECONDS, "the failure")
    lines = [line for line in done.stderr.splitlines() if line.startswith("ronde-perf: ")]
    expect(len(lines) == 1, done, "expected one line")
    expect(all(part in lines[0] for part in parts), done, f"expected {parts} in: {lines[0]}")
    expect(len(lines[0]) < 400, done, "the message is long")


def check_flags(perf):
    # Every mistake has its text in unit.perf.options; that it is one line, and exit code 2, is seen here.
    cases = [
        (["-b", "-1"], "--minbytes"), (["--json", "/proc/nonexistent/x"], "/proc/nonexistent/x"),
        (["--no-such-flag"], "--help"), (["--root", "5"], "from 0 to"),
    ]
    for ranks in (1, 2):
        done = perf.run("--version", ranks=ranks)
        expect(done.returncode == 0 and done.stdout.count("ronde-perf ") == 1, done, "no version")
    on_two_ranks = {"-b", "--json", "--root"}
    for flags, part in cases:
        refused(perf.run(*flags), 2, part)
        if flags[0] in on_two_ranks:
            refused(perf.run(*flags, ranks=2), 2, part)
    # Memory of the engine has a limit, plain memory has not: so --buffer is seen to have an effect.
    limit = {"RONDE_BUFFER_BYTES": "1048576"}
    flags = ["-b", "4M", "-e", "4M", *SMALL]
    for ranks in (1, 2):
        refused(perf.run(*flags, "--buffer", "1", ranks=ranks, settings=limit), 1, "no place for a buffer")
        refused(perf.run(*flags, ranks=ranks, settings={"RONDE_ALGORITHM": "fastest"}), 2,
                "RONDE_ALGORITHM=fastest")
    done = perf.run(*flags, "--buffer", "0", ranks=2, settings=limit)
    expect(done.returncode == 0, done, "plain memory has no such limit")
    done = perf.run_parts([["-n", "3"], ["-n", "4"]])
    refused(done, 2, "different flags")
    done = perf.run("--help")
    expect(done.returncode == 0 and done.stderr == "" and "--minbytes" in done.stdout, done, "--help")


def check_device(perf):
    """Without a GPU, or without CUDA in the build, --device cuda is refused in one line."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""}  # hides a GPU where there is one
    for ranks in (1, 2):
        done = perf.run("-n", "1", "--device", "cuda", ranks=ranks, settings=hidden)
        refused(done, 2, "or use --device cpu")
        expect("this build has no CUDA" in done.stderr or "there is no CUDA device" in done.stderr, done,
               "why not")
    refused(perf.run("--device", "cuda", "--against", "mpi"), 2, "--against mpi works in host memory")
    document = read_json(perf.run("-b", "1K", "-e", "1K", *SMALL, "--device", "cpu", "--json", "-"))
    assert document["machine"]["device"] is None, document["machine"]
    assert document["options"]["device"] == "cpu", document["options"]


def check_timeout(perf):
    """A sample that takes too long ends the run, with a line that names the sample."""
    done = perf.run("-b", "4M", "-e", "4M", "-n", "1000000", "--timeout", "1", ranks=2)
    expect(done.returncode == 1, done, "expected exit code 1")
    late.at_most(done.seconds, ERROR_SECONDS, "the end")
    expect("no end within --timeout: allreduce of 4194304 bytes by ronde" in done.stderr, done, "no message")


CHECKS = {
    "json": check_json,
    "operations": check_operations,
    "model": check_model,
    "wrong": check_wrong,
    "files": check_files,
    "flags": check_flags,
    "device": check_device,
    "timeout": check_timeout,
}


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in CHECKS:
        sys.exit(f"usage: perf.py {'|'.join(CHECKS)} PROGRAM MPIRUN")
    try:
        CHECKS[sys.argv[1]](Perf(*sys.argv[2:4]))
    except AssertionError as error:
        sys.exit(f"{sys.argv[1]}: {error}")


if __name__ == "__main__":
    late.end(main)
