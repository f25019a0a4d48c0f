# SPDX-License-Identifier: Apache-2.0
"""The rows of ./dev bench about a CNN with 8 MiB of gradients: two ranks on one host, two replicas in one process, and
two hosts.

On two hosts a step is compared with its lower bound, whose terms the same run measures:

  compute         a step of two jobs of one rank each that run beside each other, without a network: both hosts
                  compute on this machine, so this is what its cores give to them. The slower of the two counts.
  first gradient  in that job, from the begin of a step until the first bucket of gradients leaves: forward, and
                  backward through the dense layers, whose gradients are nearly all of the bytes
  line            TCP alone with the bytes that an allreduce of all gradients must move, over the same lines
  update          in that job, from the sums to the end of the step: the norm of the gradients, and the optimiser

No step is shorter than max(compute, first gradient + line + update).
"""

import dataclasses
import tempfile
import time

from programs import Hosts, Series
from report import Row, number, spread

GRADIENT_BYTES = 4 * 2_103_242  # of train_fashion_mnist --model cnn
BATCHES = (64, 256)  # images of a rank in a step
STEPS = {64: 40, 256: 12}
STEPS_SAVING = 160  # some 15 s
REPETITIONS = 5
TWO_HOSTS = Hosts(2, 1, mpi_idle="spin")
# A thread that waits for UCX sleeps, so that MPI may idle as it likes.
OVER_UCX = Hosts(2, 1, transport="ucx")
# One dense layer's gradient is 95 % of the bytes. It is more than this bucket and leaves as soon as it is there;
# what the convolutions add is 0.4 MB, which needs no smaller buckets. Named here, since the bound counts from the
# first bucket on: a larger bucket would loosen it.
BUCKET_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Turn:
    """What one program said of a training."""

    images_per_second: float
    step_ms: float
    first_gradient_ms: float
    update_ms: float
    wait_share: float
    share_before_wait: float

    @staticmethod
    def of(result):
        return Turn(images_per_second=result["images_per_second"],
                    step_ms=1e3 * result["seconds"] / result["steps"],
                    **{key: result[key] for key in ("first_gradient_ms", "update_ms", "wait_share",
                                                    "share_before_wait")})


@dataclasses.dataclass
class Bound:
    """The terms of one repetition, in milliseconds."""

    compute: float
    first_gradient: float
    line: float
    update: float

    @property
    def ms(self):
        return max(self.compute, self.first_gradient + self.line + self.update)


def bound(apart, line_ms):
    """What two hosts cannot do better than; `apart` are two jobs of one rank beside each other."""
    slower = max(apart, key=lambda turn: turn.step_ms)
    return Bound(slower.step_ms, slower.first_gradient_ms, line_ms, slower.update_ms)


class Cnn:
    """The measurements. The turns of a repetition follow one another, and each repetition begins with another."""

    def __init__(self, programs):
        self.programs = programs

    def command(self, ranks, batch, *flags, steps=None):
        size = ranks.hosts * ranks.ranks if isinstance(ranks, Hosts) else ranks
        steps = 4 if self.programs.quick else steps or STEPS[batch]
        return self.programs.command(ranks, "train_fashion_mnist", "--model", "cnn", "--threads", "1", "--epochs", "1",
                                     "--test-images", "100", "--steps", str(steps), "--global-batch",
                                     str(batch * size), "--bucket-bytes", str(BUCKET_BYTES), *flags)

    def turns(self, commands):
        """Runs each list of commands together, several times; returns {name: [[Turn, ...] of a repetition, ...]}."""
        results = {name: [] for name in commands}
        names = list(commands)
        begin = time.monotonic()
        for repetition in range(min(REPETITIONS, self.programs.repetitions)):
            first = repetition % len(names)
            for name in names[first:] + names[:first]:
                results[name].append([Turn.of(result) for result in self.programs.run_together(commands[name])])
        self.programs.log(f"{time.monotonic() - begin:5.1f} s  train_fashion_mnist --model cnn: {', '.join(names)}")
        self.programs.raw.setdefault("train_fashion_mnist --model cnn", []).append(
            {name: [[dataclasses.asdict(turn) for turn in turns] for turns in each] for name, each in results.items()})
        return results

    def one_host(self):
        one = self.command(1, 64)
        # Two threads of one process: the same 64 images on each.
        mirrored = self.command(1, 128, "--strategy", "mirrored", "--replicas", "2", steps=STEPS[64])
        return self.turns({"two ranks": [self.command(2, 64)], "mirrored": [mirrored], "two apart": [one, one]})

    def saving(self):
        """With Adam, whose moments make a checkpoint of 25 MB."""
        with tempfile.TemporaryDirectory(prefix="ronde_bench_") as folder:
            commands = {name: [self.command(2, 64, "--optimizer", "adam", *flags, steps=STEPS_SAVING)]
                        for name, flags in (("without checkpoints", []),
                                            ("a checkpoint each 2 s", ["--logdir", folder, "--save-seconds", "2",
                                                                       "--restore", "never"]))}
            return self.turns(commands)

    def two_hosts(self, batch):
        one = self.command(1, batch)
        return self.turns({"two apart": [one, one],
                           "overlap": [self.command(TWO_HOSTS, batch)],
                           "no overlap": [self.command(TWO_HOSTS, batch, "--overlap", "off")]})

    def two_hosts_over_ucx(self, batch):
        one = self.command(1, batch)
        return self.turns({"two apart": [one, one], "overlap": [self.command(OVER_UCX, batch)]})

    def line_ms(self):
        times = self.programs.perf_times(TWO_HOSTS, "-b", str(GRADIENT_BYTES), "-e", str(GRADIENT_BYTES),
                                         "--against", "line", iterations=5)
        return times[GRADIENT_BYTES, "line"].median / 1e3


def rows_one_host(cnn):
    """Two ranks against two jobs that have nothing to do with each other."""
    measured = cnn.one_host()
    two = Series([turns[0].images_per_second for turns in measured["two ranks"]])
    apart = [[turn.images_per_second for turn in turns] for turns in measured["two apart"]]
    both = Series([sum(each) for each in apart])
    # Ranks that keep step go at the pace of the slower.
    in_step = Series([2 * min(each) for each in apart])
    yield Row("CNN, 2 ranks at 128, to 2 unconnected jobs", f"{spread(both)} images/s", f"{spread(two)} images/s",
              two.over(both), ">=", 0.95, in_step.over(both))
    mirrored = Series([turns[0].images_per_second for turns in measured["mirrored"]])
    yield Row("CNN, Mirrored(2) at 128, to 2 ranks", f"{spread(two)} images/s", f"{spread(mirrored)} images/s",
              mirrored.over(two), ">=", 0.95)


def rows_saving(cnn):
    """What checkpoints and logs cost a step."""
    without, saving = (Series([turns[0].step_ms for turns in each]) for each in cnn.saving().values())
    yield Row("CNN, 2 ranks at 128, a checkpoint each 2 s to none", spread(without, " ms"), spread(saving, " ms"),
              saving.over(without), "<=", 1.02)


def bound_text(bounds):
    """The median of each term, and which of both sums is the larger."""
    terms = {term: number(Series([getattr(each, term) for each in bounds]).median)
             for term in ("compute", "first_gradient", "line", "update")}
    return (f"max(compute {terms['compute']}, first gradient {terms['first_gradient']} + line {terms['line']} + "
            f"update {terms['update']}) ms")


def rows_two_hosts(cnn):
    line_ms = cnn.line_ms()
    for batch in BATCHES:
        yield from rows_of_batch(cnn, line_ms, batch)


def rows_over_ucx(cnn):
    line_ms = cnn.line_ms()
    for batch in BATCHES:
        measured = cnn.two_hosts_over_ucx(batch)
        bounds = [bound(apart, line_ms) for apart in measured["two apart"]]
        steps = Series([turns[0].step_ms for turns in measured["overlap"]])
        yield Row(f"CNN, {OVER_UCX}, {batch} a rank, step to bound", bound_text(bounds), spread(steps, " ms"),
                  steps.over(Series([each.ms for each in bounds])), "<=", 1.1)


def rows_of_batch(cnn, line_ms, batch):
    measured = cnn.two_hosts(batch)
    with_overlap, without = measured["overlap"], measured["no overlap"]
    bounds = [bound(apart, line_ms) for apart in measured["two apart"]]
    steps = Series([turns[0].step_ms for turns in with_overlap])
    steps_without = Series([turns[0].step_ms for turns in without])
    name = f"CNN, {TWO_HOSTS}, {batch} a rank"
    yield Row(f"{name}, step to bound", bound_text(bounds), spread(steps, " ms"),
              steps.over(Series([each.ms for each in bounds])), "<=", 1.1)
    yield Row(f"{name}, step to one without overlap", spread(steps_without, " ms"), spread(steps, " ms"),
              steps.over(steps_without), "<=", 1.0)
    for label, turns in (("", with_overlap), (" without overlap", without)):
        waited = Series([100 * each[0].wait_share for each in turns])
        early = Series([100 * each[0].share_before_wait for each in turns])
        yield Row(f"  {batch} a rank, wait{label}", "", f"{spread(waited)} % of a step, {spread(early)} % of the bytes before it")

