# SPDX-License-Identifier: Apache-2.0
"""Starts the programs that ./dev bench measures with, and reads what they print.

Each result is a plain dictionary or a Series, so that rows.py and its test need no program.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import modes

MPIRUN_FLAGS = ["--bind-to", "none", "--oversubscribe"]
# Where there are more ranks than cores every core gets as many. The kernel by itself may keep three of four
# ranks on one core for a second, and would then be what is measured.
CROWDED_FLAGS = ["--map-by", "core", "--bind-to", "core:overload-allowed", "--oversubscribe"]


# Several hosts are network namespaces, joined by lines of this rate.
HOSTS_RUN = pathlib.Path(__file__).resolve().parent.parent / "hosts" / "run"
HOSTS_RATE = "1gbit"
SKIPPED = 77  # test/hosts/run: this machine cannot make hosts


@dataclasses.dataclass(frozen=True)
class Hosts:
    """A job over several hosts, in place of a number of ranks on this one."""

    hosts: int
    ranks: int  # on each
    rate: str = HOSTS_RATE  # of every host's line
    # What MPI does while nothing arrives. Ronde never waits inside MPI, but its thread looks into it beside the
    # one that computes: if MPI yields, each look costs a time slice of the other, and nothing overlaps.
    mpi_idle: str = "yield"
    # What carries tensors between the hosts; None: what Ronde chooses, which is MPI here.
    transport: str | None = None

    def over(self, transport):
        return dataclasses.replace(self, transport=transport)

    def __str__(self):
        return f"{self.hosts} hosts x {self.ranks}" + (f" over {self.transport}" if self.transport else "")


class CannotRun(Exception):
    """This machine does not allow the measurement; the text says why."""


class ProgramError(Exception):
    """A program failed; the text holds what it printed."""


@dataclasses.dataclass
class Series:
    """One number per repetition."""

    values: list

    @property
    def median(self):
        return statistics.median(self.values)

    def over(self, other):
        """Divides repetition by repetition, since what was measured side by side is compared side by side."""
        return Series([mine / theirs for mine, theirs in zip(self.values, other.values, strict=True)])

    def times(self, factor):
        return Series([value * factor for value in self.values])


def by_contender(samples, time_key):
    """Returns {(bytes, contender): Series of times, by repetition}; refuses wrong results."""
    groups = {}
    for sample in sorted(samples, key=lambda sample: sample["repetition"]):
        if sample["wrong"]:
            raise ProgramError(f"{sample['wrong']} wrong results: {sample}")
        groups.setdefault((sample["bytes"], sample["contender"]), []).append(sample[time_key])
    return {key: Series(values) for key, values in groups.items()}


def joined(rounds):
    """Joins what several rounds of one measurement found."""
    result = {key: Series([]) for key in rounds[0]}
    for times in rounds:
        for key, series in times.items():
            result[key].values.extend(series.values)
    return result


def with_best_floor(times):
    """Names the floor of the best piece size "floor", since every machine may choose its own."""
    result = {}
    for (size, contender), series in times.items():
        if not contender.startswith("floor-"):
            result[size, contender] = series
            continue
        best = result.get((size, "floor"))
        if best is None or series.median < best.median:
            result[size, "floor"] = series
    return result


class Programs:
    """Runs programs of one build. `log` gets a line for each."""

    def __init__(self, folder, log, quick=False):
        self.folder = pathlib.Path(folder)
        self.log = log
        self.quick = quick
        self.repetitions = 2 if quick else 7
        self.mpirun = shutil.which("mpirun")
        self.raw = {}  # what the programs printed, for --json

    def start(self, command, **more):
        settings = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **more)
        # It gets a session of its own, so that a program is ended together with its ranks.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", env=settings,
                                start_new_session=True)

    @staticmethod
    def finish(process, seconds, tick=None):
        """Waits for the end of the program, calls `tick` twice a second meanwhile, and returns its standard output."""
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                out, err = process.communicate(timeout=min(left, 0.5) if tick else left)
                break
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    tick()
                    continue
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise ProgramError(f"the program did not end within {seconds:.0f} s: {' '.join(process.args)}\n{err}")
        if process.returncode == SKIPPED:
            raise CannotRun(err.strip())
        if process.returncode != 0:
            raise ProgramError(f"exit code {process.returncode}: {' '.join(process.args)}\n{out}{err}")
        return out

    def command(self, ranks, program, *arguments):
        path = self.folder / program
        if not path.exists():
            raise ProgramError(f"there is no {path}: build it with ./dev build")
        if isinstance(ranks, Hosts):
            return [str(HOSTS_RUN), "--hosts", str(ranks.hosts), "--ranks", str(ranks.ranks), "--rate", ranks.rate,
                    "--mpi-idle", ranks.mpi_idle, "--",
                    *([] if ranks.transport is None else ["env", f"RONDE_TRANSPORT={ranks.transport}"]),
                    str(path.resolve()), *arguments]
        if ranks == 1:
            return [str(path), *arguments]
        if self.mpirun is None:
            raise ProgramError("there is no mpirun")
        flags = CROWDED_FLAGS if ranks > len(os.sched_getaffinity(0)) else MPIRUN_FLAGS
        return [self.mpirun, *flags, "-np", str(ranks), str(path), *arguments]

    def keep(self, name, samples):
        self.raw.setdefault(name, []).extend(samples)

    def run(self, ranks, program, *arguments, seconds=300):
        command = self.command(ranks, program, *arguments)
        begin = time.monotonic()
        output = self.finish(self.start(command), seconds)
        self.log(f"{time.monotonic() - begin:5.1f} s  {ranks} ranks: {program} {' '.join(arguments)}")
        return output

    # ---- ronde-perf ----

    def perf(self, ranks, *arguments, iterations, repetitions=None):
        """Runs ronde-perf and returns its whole JSON document."""
        iterations = max(2, iterations // 10) if self.quick else iterations
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "perf.json"
            self.run(ranks, "ronde-perf", *arguments, "-n", str(iterations), "-d", "float", "-o", "sum",
                     "--place", "in", "--repetitions", str(repetitions or self.repetitions), "--json", str(file))
            document = json.loads(file.read_text(encoding="utf-8"))
        self.keep(f"ronde-perf at {ranks} ranks: {' '.join(arguments)}", document["samples"])
        return document

    def perf_times(self, ranks, *arguments, iterations, repetitions=None):
        document = self.perf(ranks, *arguments, iterations=iterations, repetitions=repetitions)
        return by_contender(document["samples"], "p50_us")

    # ---- test/bench ----

    def samples(self, ranks, program, *arguments):
        arguments = [*arguments, "--json", "--repetitions", str(self.repetitions)]
        if self.quick:
            arguments.append("--quick")
        samples = json.loads(self.run(ranks, program, *arguments))["samples"]
        self.keep(f"{program} at {ranks} ranks: {' '.join(arguments)}", samples)
        return with_best_floor(by_contender(samples, "median_us"))

    def data_plane(self, ranks, sizes, *arguments):
        return self.samples(ranks, "bench/data_plane", "--sizes", sizes, *arguments)

    def messages(self, sizes):
        return self.samples(2, "bench/messages", "--sizes", sizes)

    def floor(self, ranks, sizes):
        # This program starts its ranks by itself.
        return self.samples(1, "bench/floor", "--ranks", str(ranks), "--sizes", sizes)

    def timeline(self, ranks, file):
        """What bench/phases has written."""
        self.run(ranks, "bench/phases", str(file), "8", "100" if self.quick else "2000")
        return file.read_text(encoding="utf-8")

    def engine(self, ranks, *arguments):
        return self.key_values(self.run(ranks, "bench/engine", *arguments))

    @staticmethod
    def key_values(text):
        """Returns the numbers of the last line of key=value pairs. Another process may have the last word on
        a standard output that hosts share."""
        for line in reversed(text.splitlines()):
            pairs = [pair.partition("=") for pair in line.split()]
            if pairs and all(key and equals for key, equals, _ in pairs):
                return {key: float(value) for key, _, value in pairs if value.replace(".", "", 1).isdigit()}
        raise ProgramError(f"there is no line of results: {text}")

    # ---- opening ----

    def opening(self, launcher):
        """Opens engines of 2 ranks, once; returns the seconds of that and of the whole job."""
        program = self.command(1, "bench/engine", "opening")
        begin = time.monotonic()
        if launcher == "mpirun":
            outputs = [self.run(2, "bench/engine", "opening", seconds=60)]
        else:
            # The ranks of one host meet at a socket of this name, which is no port.
            place = {"RONDE_SIZE": "2", "RONDE_MEET": f"localhost:{10000 + os.getpid() % 50000}"}
            outputs = self.outputs_of([self.start(program, RONDE_RANK=str(rank), **place) for rank in range(2)])
        return {"opening_s": self.key_values(outputs[0])["opening_s"], "job_s": time.monotonic() - begin}

    # ---- training ----

    def run_together(self, commands):
        return [self.key_values(output) for output in self.outputs_of([self.start(command) for command in commands])]

    def outputs_of(self, jobs):
        try:
            return [self.finish(job, 120) for job in jobs]
        finally:
            for job in jobs:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
                    job.wait()

    def server_job(self, program, *flags, workers, servers, **settings):
        """The results of a job with servers; modes.run_servers() says what settings it has."""
        path, *flags = self.command(1, program, *flags)
        begin = time.monotonic()
        try:
            results = self.key_values(modes.run_servers(path, flags, workers=workers, servers=servers, **settings))
        except modes.JobError as error:
            raise ProgramError(f"{program}: {error}") from error
        self.log(f"{time.monotonic() - begin:5.1f} s  {workers} workers, {servers} servers: {program} "
                 f"{' '.join(flags)}")
        self.keep(f"{program}, {workers} workers, {servers} servers", [results])
        return results

    def train(self, batch):
        """Returns images per second: {"one": 1 rank at `batch`, "two": 2 ranks at 2 * batch, "in step": twice
        the slower of two jobs of 1 rank at the same time, which is what the cores give to ranks that keep
        step}."""
        flags = ["--threads", "1", "--epochs", "1" if self.quick else "2"]
        one = self.command(1, "train_fashion_mnist", *flags, "--global-batch", str(batch))
        two = self.command(2, "train_fashion_mnist", *flags, "--global-batch", str(2 * batch))
        speeds = {"one": [], "two": [], "in step": []}
        apart = []
        begin = time.monotonic()
        for repetition in range(self.repetitions):
            turns = {"one": [one], "two": [two], "in step": [one, one]}
            order = list(turns)[repetition % 3:] + list(turns)[:repetition % 3]
            for name in order:
                each = [result["images_per_second"] for result in self.run_together(turns[name])]
                speeds[name].append(len(each) * min(each))
                if name == "in step":
                    apart.append(each)
        self.log(f"{time.monotonic() - begin:5.1f} s  train_fashion_mnist, alone, two ranks, and two apart")
        self.raw["train_fashion_mnist, images per second"] = dict(speeds, apart=apart)
        return {name: Series(values) for name, values in speeds.items()}
