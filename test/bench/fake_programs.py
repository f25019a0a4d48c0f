# SPDX-License-Identifier: Apache-2.0
"""Programs whose figures a test chooses."""

import json
import pathlib
import signal

import cnn
import report
from programs import CannotRun, Hosts, ProgramError, Series


class FakePrograms:
    """Every time makes Ronde pass by far, but for those that a test changes."""

    repetitions = 5
    core_to_core_ns = 50.0

    def __init__(self, folder="", log=lambda text: None, quick=False):
        self.folder, self.log, self.quick = pathlib.Path(folder), log, quick
        self.raw = {}
        self.signals = []  # that the tasks of each job with servers got
        self.transports = []  # of the programs on hosts, in their order
        self.launchers = []  # of the engines that were opened, in their order

    @staticmethod
    def times(sizes, contenders):
        us = {"ronde": 1.0, "floor": 1.0}
        return {(size, name): Series([us.get(name, 1000.0)] * 5) for size in sizes for name in contenders}

    def perf_times(self, ranks, *arguments, iterations, repetitions=None):
        del iterations, repetitions
        self.transports.append(getattr(ranks, "transport", None))
        if str(cnn.GRADIENT_BYTES) in arguments:
            return self.times([cnn.GRADIENT_BYTES], ["line"])
        return self.times([8, 64 * report.KIB, report.MIB, 16 * report.MIB, 64 * report.MIB],
                          ["ronde", "mpi", "mpi-best", "memcpy", "line"])

    def perf(self, ranks, *arguments, iterations):
        del ranks, iterations
        if "--model" not in arguments:
            times = self.times([8, 4 * report.KIB, 64 * report.KIB, report.MIB, 16 * report.MIB],
                               ["ronde", "mpi", "memcpy", "floor"])
            return {"samples": [{"bytes": size, "contender": name, "repetition": i, "p50_us": us, "wrong": 0,
                                 "c2c_before_ns": self.core_to_core_ns, "c2c_after_ns": None}
                                for (size, name), series in times.items() for i, us in enumerate(series.values)]}
        return {"samples": [{"contender": name, "p50_us": us, "wrong": 0}
                            for name, us in (("ronde", 1.0), ("ronde-flat", 2.0)) for _ in range(5)]}

    def data_plane(self, ranks, sizes, *arguments):
        del ranks, sizes, arguments
        return self.times([8, 4 * report.KIB, 64 * report.KIB, report.MIB, 16 * report.MIB, 64 * report.MIB],
                          ["ronde", "mpi", "mpi-best", "memcpy", "floor"])

    def messages(self, sizes):
        del sizes
        return self.times([8, 64 * report.MIB], ["ronde", "ronde-buffer", "ronde-kernel", "ronde-prepared", "mpi",
                                                 "memcpy"])

    def floor(self, ranks, sizes):
        del ranks, sizes
        return self.times([64 * report.MIB], ["floor", "memcpy"])

    def engine(self, ranks, *arguments):
        del arguments
        return {"cpu_s_per_gib": 1.0 if getattr(ranks, "transport", None) == "ucx" else 4.0,
                "core_share": 0.0, "control_bytes": 0.0, "p10_us": 1.0, "p50_us": 1.0, "p90_us": 1.0,
                "few_us": 5.0, "many_us": 6.0, "blocking_us": 4.0, "waits_us": 4.0, "wrong": 0.0,
                **{f"{kind}_{us}": 100.0 for kind in ("after", "steady", "changed") for us in (50, 200, 500)}}

    def run(self, ranks, program, *arguments):
        del ranks, program
        return "0.5\n" if "--accelerate-mpi" in arguments else "1.0\n"

    def timeline(self, ranks, file):
        """Two calls of each rank; rank 1 comes 1 us later than rank 0, and each phase takes one more than the last."""
        del file
        events = []
        for rank in range(ranks):
            for begin in (100.0 + rank, 200.0 + rank):
                events += [{"pid": rank, "ph": "B", "cat": "MARK", "ts": begin},
                           {"pid": rank, "ph": "X", "cat": "NEGOTIATE_ALLREDUCE", "ts": begin + 1, "dur": 2.0},
                           {"pid": rank, "ph": "X", "cat": "ALLREDUCE", "ts": begin + 6, "dur": 4.0},
                           {"pid": rank, "ph": "E", "cat": "MARK", "ts": begin + 15}]
        return json.dumps(events)

    def opening(self, launcher):
        self.launchers.append(launcher)
        return {"opening_s": 0.02, "job_s": 0.1 if launcher == "by hand" else 0.5}

    def train(self, batch):
        del batch
        return {name: Series([1000.0] * 5) for name in ("one", "two", "in step")} | {"two": Series([2000.0] * 5)}

    def command(self, ranks, program, *arguments):
        return [ranks, program, *arguments]

    def run_together(self, commands):
        """Steps of 10 ms, and of 20 without overlap; the line takes 1 ms."""
        return [{"images_per_second": 1000.0 * (2 if command[0] == 2 or "mirrored" in command else 1), "steps": 10.0,
                 "seconds": 0.2 if "off" in command else 0.1, "first_gradient_ms": 2.0, "update_ms": 1.0, "wait_share": 0.1,
                 "share_before_wait": 0.9, "servers": 1.0, "memcpy_ms": 10.0, "both_ms": 16.0, "socket_ms": 12.0,
                 "pull_ms": 0.8, "push_ms": 1.0} for command in commands]

    def keep(self, name, samples):
        self.raw.setdefault(name, []).extend(samples)

    pause = 0.0  # seconds without a step, from when a worker is stopped
    stopped_rate = 1.0  # of two workers while the third is stopped, in parts of what they do without it

    def server_job(self, program, *flags, workers, servers, watch=lambda *_: None):
        """Each worker makes 100 steps a second."""
        del program, servers
        signals, seconds = [], 0.0
        self.signals.append(signals)
        tasks = {("worker", i): FakeTask(signals) for i in range(workers)}
        for step in range(0, int(flags[flags.index("--steps") + 1]), 25):
            before = len(signals)
            watch(seconds, f"step {step}, loss: 0.5\n", tasks)
            seconds += self.pause if len(signals) > before else 0.0
            rate = 200.0 * self.stopped_rate if signals[-1:] == [signal.SIGSTOP] else 100.0 * workers
            seconds += 25 / rate
        return {"images_per_second": 1500.0, "chief_bytes_per_step": 2.0 * 4 * 101_770}


class FakeTask:
    def __init__(self, signals):
        self.send_signal = signals.append


class SlowedByStopped(FakePrograms):
    """A worker that is stopped slows the others."""

    stopped_rate = 0.9


class HeldByStopped(FakePrograms):
    """A worker that is stopped holds the others until it is given up. They make 20,000 steps in 100 s else."""

    pause = 100.0


class SlowOverUcx(FakePrograms):
    """UCX takes 1.3 times as long as MPI, and 0.6 times the processors."""

    def perf_times(self, ranks, *arguments, iterations, repetitions=None):
        times = super().perf_times(ranks, *arguments, iterations=iterations, repetitions=repetitions)
        if getattr(ranks, "transport", None) != "ucx":
            return times
        return times | {(size, "ronde"): Series([1.3] * 5) for size, _ in times}

    def engine(self, ranks, *arguments):
        cpu = 2.4 if getattr(ranks, "transport", None) == "ucx" else 4.0
        return dict(super().engine(ranks, *arguments), cpu_s_per_gib=cpu)


class SlowByHand(FakePrograms):
    """Opening takes 0.2 s where nobody's mpirun has started the ranks."""

    def opening(self, launcher):
        return super().opening(launcher) | ({"opening_s": 0.2} if launcher == "by hand" else {})


class BusyPrograms(FakePrograms):
    def engine(self, ranks, *arguments):
        return dict(super().engine(ranks, *arguments), core_share=0.5)


class WakesToWait(FakePrograms):
    """Submitting and then waiting costs 2 us more than blocking, as where each submission woke a thread."""

    def engine(self, ranks, *arguments):
        return dict(super().engine(ranks, *arguments), waits_us=6.0)


class SlowWithMany(FakePrograms):
    """An operation costs more when more of them are outstanding."""

    def engine(self, ranks, *arguments):
        return dict(super().engine(ranks, *arguments), many_us=7.0)


class MovingMemory(FakePrograms):
    """Copies are fast beside Ronde and slow beside the floor, whose own time is `floor_us`."""

    floor_us = 1.0

    def perf_times(self, ranks, *arguments, iterations, repetitions=None):
        times = super().perf_times(ranks, *arguments, iterations=iterations, repetitions=repetitions)
        return times | {(64 * report.MIB, "memcpy"): Series([0.7] * 5)}

    def floor(self, ranks, sizes):
        times = super().floor(ranks, sizes)
        return times | {(64 * report.MIB, "floor"): Series([self.floor_us] * 5),
                        (64 * report.MIB, "memcpy"): Series([1.4] * 5)}


class MovingMemoryAndFastFloor(MovingMemory):
    floor_us = 0.6


class SlowBetweenHosts(FakePrograms):
    """The data plane takes 1.3 times as long as MPI between hosts."""

    def data_plane(self, ranks, sizes, *arguments):
        times = super().data_plane(ranks, sizes, *arguments)
        if not isinstance(ranks, Hosts):
            return times
        return times | {(size, "ronde"): Series([1300.0] * 5) for size, _ in times}


class NoHosts(FakePrograms):
    def perf_times(self, ranks, *arguments, iterations, repetitions=None):
        raise CannotRun("not root")


class NoPrograms(FakePrograms):
    def engine(self, ranks, *arguments):
        raise ProgramError("there is no such program")
