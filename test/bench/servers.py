# SPDX-License-Identifier: Apache-2.0
"""The rows of ./dev bench about parameter servers: a pull and a push beside copies and beside the line between hosts, a
training beside the ring, and workers beside one that is stopped."""

import functools
import re
import signal
import time

from programs import Hosts, ProgramError, Series
from report import MIB, Row, spread
from transports import in_turns

# The training, all of it: a perceptron on Fashion-MNIST, with servers and without.
PROGRAM = "train_fashion_mnist"
RING = ["--learning-rate", "0.05", "--momentum", "0", "--log-every", "25", "--epochs", "1000"]
ASYNC = [*RING, "--mode", "async"]
BATCH = 64  # images of a worker in a step
MLP_BYTES = 4 * (784 * 128 + 128 + 128 * 10 + 10)

SERVERS = {1: "1 server", 2: "2 servers", 4: "4 servers"}
REPETITIONS = 5
TWO_HOSTS = Hosts(2, 1)
# The first host serves, the other one pulls and pushes. $0 is the program.
BY_RANK = """export RONDE_JOB_SECRET="the secret of a measurement"
server=10.213.0.1:29511
if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then exec "$0" serve 0 1 $server; fi
exec "$0" 64 1 $server"""


def repeat(programs, turns):
    """{name: {figure: its Series}} of turns that return {figure: number}."""
    results = in_turns(min(REPETITIONS, programs.repetitions), turns)
    return {name: {key: Series([each[key] for each in all_of]) for key in all_of[0]}
            for name, all_of in results.items()}


# ---- a pull and a push ----


def transfer(programs, command):
    begin = time.monotonic()
    result = programs.run_together([command])[0]
    programs.log(f"{time.monotonic() - begin:5.1f} s  server_transfer, {result['servers']:.0f} servers")
    programs.keep("server_transfer", [result])
    return result


def rows_transfer(bench):
    programs = bench.programs
    commands = {count: programs.command(1, "bench/server_transfer", "64", str(count)) for count in SERVERS}
    turns = {count: functools.partial(transfer, programs, command) for count, command in commands.items()}
    for count, times in repeat(programs, turns).items():
        copies, sockets, both = times["memcpy_ms"], times["socket_ms"], times["both_ms"]
        # A socket copies twice, by two threads, and little at a time: no ipc is faster.
        yield Row(f"{SERVERS[count]}, pull and push of 64 MiB over ipc, to memcpy",
                  f"memcpy {spread(copies, ' ms')}", spread(both, " ms"), copies.over(both), ">=", 0.5,
                  copies.over(sockets))
        yield Row("  to the same bytes through a pair of sockets", f"sockets {spread(sockets, ' ms')}",
                  spread(both, " ms"), sockets.over(both))


def rows_line(bench):
    """Each way is compared with TCP alone, which moves as many bytes each way in an allreduce of two hosts."""
    programs = bench.programs

    def line():
        times = programs.perf_times(TWO_HOSTS, "-b", "64M", "-e", "64M", "--against", "line", iterations=5,
                                    repetitions=1)
        return {"ms": times[64 * MIB, "line"].median / 1e3}

    *bed, program = programs.command(TWO_HOSTS, "bench/server_transfer")
    served = functools.partial(transfer, programs, [*bed, "sh", "-c", BY_RANK, program])
    measured = repeat(programs, {"line": line, "servers": served})
    for way in ("pull", "push"):
        alone, ronde = measured["line"]["ms"], measured["servers"][f"{way}_ms"]
        yield Row(f"{TWO_HOSTS}, 1 server with a secret, {way} of 64 MiB, share of the line",
                  f"line {spread(alone, ' ms')}", spread(ronde, " ms"), alone.over(ronde), ">=", 0.95)


# ---- a training ----


def rows_mlp(bench):
    """Two workers in async, beside two ranks that average the gradients of as many batches."""
    programs = bench.programs
    steps = 400 if programs.quick else 16_000  # of all workers

    def ring():
        command = programs.command(2, PROGRAM, *RING, "--steps", str(steps // 2), "--global-batch", str(2 * BATCH))
        return {"images": programs.run_together([command])[0]["images_per_second"]}

    def served(servers):
        result = programs.server_job(PROGRAM, *ASYNC, "--steps", str(steps), "--global-batch", str(2 * BATCH),
                                     workers=2, servers=servers)
        return {"images": result["images_per_second"], "bytes": result["chief_bytes_per_step"]}

    measured = repeat(programs, {"ring": ring, **{count: functools.partial(served, count) for count in SERVERS}})
    alone = measured.pop("ring")["images"]
    for count, figures in measured.items():
        images, moved = figures["images"], figures["bytes"]
        yield Row(f"MLP, {SERVERS[count]}, 2 workers in async, to the ring of 2 ranks",
                  f"{spread(alone)} images/s", f"{spread(images)} images/s", images.over(alone))
        # A worker pulls all variables and pushes as much; in the ring a rank of two sends the gradients once, and
        # receives them once.
        yield Row(f"  {SERVERS[count]}, bytes of a worker's step, to all variables twice",
                  f"{2 * MLP_BYTES} (ring, computed: as many)", spread(moved), moved.times(0.5 / MLP_BYTES), "<=", 1.05)


class Watch:
    """Counts steps over time by the chief's lines. A third worker is stopped from the step `stop` to the step `end`."""

    def __init__(self, stop, end):
        self.stop, self.end = stop, end
        self.stopped = False
        self.before, self.seen = [], []  # (seconds, global step)

    def __call__(self, seconds, line, tasks):
        match = re.match(r"step (\d+)", line)
        if match is None:
            return
        step, third = int(match[1]), tasks.get(("worker", 2))
        if step < self.stop:
            self.before.append((seconds, step))
        elif step < self.end:
            self.seen.append((seconds, step))  # the first of them, too: the others may stand still from then on
            if third is not None and not self.stopped:
                third.send_signal(signal.SIGSTOP)
                self.stopped = True
        elif self.stopped:
            third.send_signal(signal.SIGCONT)
            self.stopped = False

    @staticmethod
    def rate(seen):
        if len(seen) < 2:
            raise ProgramError(f"the chief has said too little of its steps: {seen}")
        (begin, first), (end, last) = seen[0], seen[-1]
        return (last - first) / (end - begin)


def rows_stopped(bench):
    """A stopped worker leaves its share of the cores to the others: they are compared with a job without it."""
    programs = bench.programs
    before, during = (1000, 1000) if programs.quick else (4000, 20_000)  # steps of all workers

    def served(workers):
        watch = Watch(before, before + during)
        # A worker that is silent for so long is given up; the chief waits for this one in the end.
        programs.server_job(PROGRAM, *ASYNC, "--worker-timeout", "60", "--steps", str(before + during + 200),
                            "--global-batch", str(workers * BATCH), workers=workers, servers=1, watch=watch)
        # Some are there before others: all of them in the later half.
        return {"before": watch.rate(watch.before[len(watch.before) // 2:]), "rate": watch.rate(watch.seen)}

    measured = repeat(programs, {"without": lambda: served(2), "stopped": lambda: served(3)})
    others, alone = measured["stopped"]["rate"], measured["without"]["rate"]
    yield Row("async, 2 workers beside a third that is stopped, to a job without it",
              f"{spread(alone)} steps/s", f"{spread(others)} steps/s", others.over(alone), ">=", 0.95)
    shared = measured["stopped"]["before"].times(2 / 3)
    yield Row("  to two thirds of what all three did before",
              f"{spread(shared)} steps/s", f"{spread(others)} steps/s", others.over(shared))
