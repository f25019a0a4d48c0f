#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The budgets of Ronde, on one host and on several, measured side by side: ./dev bench.

Every row compares Ronde with a yardstick that the same run measures, in at least 5 interleaved
repetitions. The median over the repetitions of the ratio in each decides. A row that is missed fails
the run, unless the floor misses it too in the same run: then the machine cannot reach it. The floor is
the same memory traffic with no runtime around it; for training it is twice the slower of two ranks that
run apart at the same time. Figures of other programs that were measured on another machine are shown
and decide nothing.
"""
import argparse
import datetime
import functools
import json
import pathlib
import sys
import time

import cnn
import opening
import phases
import servers
import small
import transports
from machine import machine_text, note_busy_machine
from programs import CannotRun, Hosts, ProgramError, Programs, Series, joined
from report import KIB, MIB, Row, beside, exit_code, legend, no_slower, size_text, spread, table

# These figures were measured elsewhere and typed in: Horovod 0.28.1 on OpenMPI 4.1.4 and PyTorch 2.15 (DDP
# over gloo), 2 ranks on 2 cores of an Intel Xeon. Rows show them and decide nothing by them.
HOROVOD_8_BYTES_US = 1067.0
HOROVOD_RESNET50_US = 71_600.0
HOROVOD_RESNET50_RATIO = 1.68
PYTORCH_MLP_IMAGES = (96_400, 54_800)  # 1 rank at 128, 2 ranks at 128

# Up to 12 KiB two ranks take one round, above it they take windows.
DATA_PLANE_SIZES = "8,64,512,4K,12K,16K,32K,64K,256K,512K,1M,2M,4M,16M,64M,256M"

HOSTS = (Hosts(4, 1), Hosts(2, 2))
HOSTS_SIZES = "8,512,4K,8K,16K,32K,64K,256K,1M,4M"

BATCH = 64  # samples of one rank in the training row

# The speed of a virtual machine's memory changes by a third within minutes, as its neighbours come and
# go. Where memory decides, a measurement and its floor therefore take turns.
ROUNDS = 3


def faster(name, times, size, yardstick, limit, floor_times=None):
    """Ronde is `limit` times faster than the yardstick."""
    ronde, theirs = times[size, "ronde"], times[size, yardstick]
    floor = None
    if floor_times is not None:
        floor = floor_times[size, yardstick].over(floor_times[size, "floor"])
    return Row(name, f"{yardstick} {spread(theirs, ' us')}", spread(ronde, " us"),
               theirs.over(ronde), ">=", limit, floor)


def between_hosts_limit(size):
    """How many times the time of MPI_Allreduce the data plane may take between hosts.

    MPI may sum in pairs. The order of Ronde's sums is fixed, so that the bits are the same whichever
    algorithm runs, and small vectors pay for it."""
    if size <= 512:
        return 1.25
    return 1.4 if size < 64 * KIB else 1.05


def elsewhere(name, theirs, ronde, ratio):
    """A figure that was typed in: the row shows it beside what this run measured, and decides nothing."""
    return Row(name, theirs, ronde, ratio, elsewhere=True)


class Bench:
    """The rows. Each measurement is taken once, when the first row needs it."""

    def __init__(self, programs):
        self.programs = programs

    # ---- the measurements ----

    @functools.cached_property
    def memory_rounds(self):
        """Each round measures Ronde beside all yardsticks, the floor beside memcpy, and the floor beside MPI."""
        return [(self.programs.perf_times(2, "-b", "16M", "-e", "64M", "-f", "4",
                                          "--against", "mpi,mpi-best,memcpy", iterations=10),
                 self.programs.floor(2, "64M"),
                 self.programs.data_plane(2, "16M,64M", "--floor", "--best"))
                for _ in range(ROUNDS)]

    @functools.cached_property
    def large(self):
        return joined([large for large, _, _ in self.memory_rounds])

    @functools.cached_property
    def floor_large(self):
        return joined([floor for _, _, floor in self.memory_rounds])

    @functools.cached_property
    def medium(self):
        return self.programs.perf_times(2, "-b", "64K", "-e", "1M", "-f", "16", "--against", "mpi",
                                        iterations=100)

    @functools.cached_property
    def tiny(self):
        return self.programs.perf_times(2, "-b", "8", "-e", "8", "--against", "mpi", iterations=2000)

    @functools.cached_property
    def four_ranks(self):
        # The scheduler may leave three ranks on one core for a while, so small sizes need many turns.
        small = self.programs.perf_times(4, "-b", "64K", "-e", "4M", "-f", "4", "--against", "mpi",
                                         iterations=100)
        large = self.programs.perf_times(4, "-b", "16M", "-e", "64M", "-f", "4", "--against", "mpi",
                                         iterations=10)
        return {**small, **large}

    @functools.cached_property
    def data_plane(self):
        return self.programs.data_plane(2, DATA_PLANE_SIZES, "--floor")

    @functools.cached_property
    def floor_four(self):
        return self.programs.data_plane(4, "64K,256K,1M,4M,16M,64M", "--floor")

    # ---- the rows, by the names that --row takes ----

    def rows_64m(self):
        size = 64 * MIB
        ronde, copies = self.large[size, "ronde"], self.large[size, "memcpy"]
        # The time of such a copy changes within seconds (from 3.9 to 9.4 ms in one run on one machine), and
        # the floor's time hardly follows it (5.2 to 6.1 ms in that run). The floor is therefore compared with
        # the very copies that Ronde is compared with.
        floor = Series([floor[size, "floor"].median / copy
                        for large, floor, _ in self.memory_rounds for copy in large[size, "memcpy"].values])
        yield Row("64 MiB, to memcpy", f"memcpy {spread(copies, ' us')}", spread(ronde, " us"),
                  ronde.over(copies), "<=", 1.0, floor)
        yield faster("64 MiB, to MPI", self.large, size, "mpi", 3.0, self.floor_large)
        yield faster("64 MiB, to MPI's best", self.large, size, "mpi-best", 1.5, self.floor_large)

    def rows_16m(self):
        size = 16 * MIB
        yield faster("16 MiB, to MPI", self.large, size, "mpi", 1.5, self.floor_large)
        yield faster("16 MiB, to MPI's best", self.large, size, "mpi-best", 1.1, self.floor_large)

    def rows_1m(self):
        yield faster("1 MiB, to MPI", self.medium, MIB, "mpi", 1.5, self.data_plane)

    def rows_64k(self):
        yield faster("64 KiB, to MPI", self.medium, 64 * KIB, "mpi", 1.5, self.data_plane)

    def rows_8b(self):
        yield faster("8 B, data plane alone", self.data_plane, 8, "mpi", 1.0, self.data_plane)
        ronde = self.tiny[8, "ronde"]
        yield Row("8 B, submit to wait [us]", f"mpi {spread(self.tiny[8, 'mpi'], ' us')}",
                  spread(ronde, " us"), ronde, "<=", 5.0)
        yield elsewhere("8 B, to Horovod", f"{HOROVOD_8_BYTES_US:.0f} us", spread(ronde, " us"),
                        Series([HOROVOD_8_BYTES_US / value for value in ronde.values]))

    def rows_4_ranks(self):
        for size in sorted({size for size, _ in self.four_ranks}):
            limit = 3.0 if size == 64 * MIB else 1.5
            yield faster(f"4 ranks, {size_text(size)}, to MPI", self.four_ranks, size, "mpi", limit,
                         self.floor_four)

    def rows_resnet50(self):
        series = {}
        for _ in range(ROUNDS):
            for sample in self.programs.perf(2, "--model", "resnet50", iterations=20)["samples"]:
                if sample["wrong"]:
                    raise ProgramError(f"{sample['wrong']} wrong results: {sample}")
                series.setdefault(sample["contender"], []).append(sample["p50_us"])
        single, flat = Series(series["ronde"]), Series(series["ronde-flat"])
        yield Row("ResNet-50 one by one, to flat", f"flat {spread(flat, ' us')}", spread(single, " us"),
                  single.over(flat), "<=", 1.15)
        yield elsewhere("  Horovod's ratio to flat", "", "", Series([HOROVOD_RESNET50_RATIO]))
        yield elsewhere("ResNet-50, to Horovod", f"{HOROVOD_RESNET50_US:.0f} us", spread(single, " us"),
                        Series([HOROVOD_RESNET50_US / value for value in single.values]))

    def rows_mlp(self):
        speed = self.programs.train(BATCH)
        twice = speed["one"].times(2.0)
        yield Row(f"MLP, 2 ranks at {2 * BATCH}, to 2 x 1 rank", f"{spread(twice)} images/s",
                  f"{spread(speed['two'])} images/s", speed["two"].over(twice), ">=", 0.85,
                  speed["in step"].over(twice))
        one, two = PYTORCH_MLP_IMAGES
        yield elsewhere("  PyTorch's ratio, over gloo", f"{two} of {2 * one} images/s", "", Series([two / (2 * one)]))

    def rows_cnn(self):
        yield from cnn.rows_one_host(cnn.Cnn(self.programs))

    def rows_saving(self):
        yield from cnn.rows_saving(cnn.Cnn(self.programs))

    def rows_cnn_hosts(self):
        yield from cnn.rows_two_hosts(cnn.Cnn(self.programs))

    def rows_idle(self):
        seconds = "1" if self.programs.quick else "3"
        idle = self.programs.engine(2, "idle", seconds)
        share = Series([idle["core_share"]])
        yield Row("idle engine, share of a core", "", f"{100 * share.median:.4f} %", share, "<=", 0.01)
        sent = Series([idle["control_bytes"]])
        yield Row("idle engine, bytes of messages", "", f"{sent.median:.0f}", sent, "<=", 0.0)

    def rows_data_plane(self):
        for n in sorted({n for n, _ in self.data_plane}):
            yield faster(f"data plane, {size_text(n)}, to MPI", self.data_plane, n, "mpi", 1 / 1.1, self.data_plane)

    def rows_latency(self):
        for ranks in (2, 4):
            result = self.programs.engine(ranks, "latency", "8")
            yield Row(f"8 B back to back, {ranks} ranks", "", f"{result['p50_us']} us"
                      f" ({result['p10_us']}..{result['p90_us']})")

    def engine_series(self, *arguments):
        """What each repetition of a mode of bench/engine measures at 2 ranks, by name."""
        if self.programs.quick:
            arguments = (*arguments, "5")
        results = [self.programs.engine(2, *arguments) for _ in range(self.programs.repetitions)]
        if any(result["wrong"] for result in results):
            raise ProgramError(f"wrong results: {results}")
        return {name: Series([result[name] for result in results]) for name in results[0]}

    def rows_waits(self):
        for size in (8, KIB, 64 * KIB, MIB):
            times = self.engine_series("waits", str(size))
            blocking, waits = times["blocking_us"], times["waits_us"]
            yield Row(f"{size_text(size)}, submit and wait, to blocking", f"blocking {spread(blocking, ' us')}",
                      spread(waits, " us"), waits.over(blocking), "<=", 1.25 if size < 64 * KIB else 1.05)

    def rows_overlap(self):
        # Every core computes here, so nothing is gained; a wrong guess costs no more than having no overlap.
        times = self.engine_series("overlap", str(64 * KIB))
        for us in (50, 200, 500):
            after = times[f"after_{us}"]
            yardstick = f"compute, then block {spread(after, ' us')}"
            steady, changed = times[f"steady_{us}"], times[f"changed_{us}"]
            yield Row(f"64 KiB, submit, compute {us} us, wait", yardstick, spread(steady, " us"), steady.over(after))
            yield Row("  the same where it had waited at once", yardstick, spread(changed, " us"), changed.over(after))

    def rows_outstanding(self):
        results = [self.programs.engine(2, "outstanding", "1" if self.programs.quick else "5")
                   for _ in range(self.programs.repetitions)]
        few, many = (Series([result[name] for result in results]) for name in ("few_us", "many_us"))
        yield Row("reduce-scatter of 8 B, 8,000 outstanding, to 1,000", f"1,000 {spread(few, ' us')}",
                  spread(many, " us"), many.over(few), "<=", 1.3)

    def rows_hosts(self):
        for hosts in HOSTS:
            large = self.programs.perf_times(hosts, "-b", "16M", "-e", "64M", "-f", "4",
                                             "--against", "mpi,mpi-best,line", iterations=2)
            for size in (16 * MIB, 64 * MIB):
                ronde, line = large[size, "ronde"], large[size, "line"]
                yield Row(f"{hosts}, {size_text(size)}, share of the line", f"line {spread(line, ' us')}",
                          spread(ronde, " us"), line.over(ronde), ">=", 0.95)
                yield faster(f"{hosts}, {size_text(size)}, to MPI", large, size, "mpi", 1.0)
                yield beside(f"{hosts}, {size_text(size)}, to MPI's best", large, size, "mpi-best")
            medium = self.programs.perf_times(hosts, "-b", "1M", "-e", "1M", "--against", "mpi,mpi-best", iterations=20)
            yield faster(f"{hosts}, 1 MiB, to MPI", medium, MIB, "mpi", 1.0)
            yield beside(f"{hosts}, 1 MiB, to MPI's best", medium, MIB, "mpi-best")

    def rows_cold(self):
        times = self.programs.data_plane(2, "64K,1M", "--cold")
        yield from (beside(f"cold caches, {size_text(size)}, to MPI", times, size, "mpi") for size in (64 * KIB, MIB))

    def rows_hosts_data_plane(self):
        for hosts in HOSTS:
            times = self.programs.data_plane(hosts, HOSTS_SIZES)
            for size in sorted({size for size, _ in times}):
                yield no_slower(f"{hosts}, data plane, {size_text(size)}, to MPI", times, size, "mpi",
                                between_hosts_limit(size))

    def rows_transports(self):
        yield from transports.Transports(self.programs, HOSTS).large()

    def rows_transports_small(self):
        yield from transports.Transports(self.programs, HOSTS).small()

    def rows_transports_cpu(self):
        yield from transports.Transports(self.programs, HOSTS).cpu()

    def rows_opening(self):
        yield from opening.rows(self.programs)

    def rows_cnn_ucx(self):
        yield from cnn.rows_over_ucx(cnn.Cnn(self.programs))


GROUPS = {
    "64M": Bench.rows_64m,
    "16M": Bench.rows_16m,
    "1M": Bench.rows_1m,
    "64K": Bench.rows_64k,
    "8B": Bench.rows_8b,
    "4-ranks": Bench.rows_4_ranks,
    "resnet50": Bench.rows_resnet50,
    "mlp": Bench.rows_mlp,
    "cnn": Bench.rows_cnn,
    "saving": Bench.rows_saving,
    "cnn-hosts": Bench.rows_cnn_hosts,
    "idle": Bench.rows_idle,
    "data-plane": Bench.rows_data_plane,
    "cold": Bench.rows_cold, "messages": small.rows_messages,
    "prepared": small.rows_prepared,
    "by-name": small.rows_by_name, "phases": phases.rows,
    "preloaded": small.rows_preloaded,
    "board": small.rows_board,
    "latency": Bench.rows_latency,
    "waits": Bench.rows_waits,
    "overlap": Bench.rows_overlap,
    "outstanding": Bench.rows_outstanding,
    "hosts": Bench.rows_hosts,
    "hosts-data-plane": Bench.rows_hosts_data_plane,
    "transports": Bench.rows_transports,
    "transports-small": Bench.rows_transports_small,
    "transports-cpu": Bench.rows_transports_cpu,
    "cnn-ucx": Bench.rows_cnn_ucx,
    "opening": Bench.rows_opening,
    "servers-transfer": servers.rows_transfer,
    "servers-line": servers.rows_line,
    "servers-mlp": servers.rows_mlp,
    "servers-stopped": servers.rows_stopped,
}


def measure(bench, names, log):
    rows = []
    for name in names:
        try:
            rows.extend(GROUPS[name](bench))
        except (ProgramError, KeyError) as error:
            log(f"{name}: {error}")
            rows.append(Row(name, error=str(error)))
        except CannotRun as reason:
            log(f"{name}: {reason}")
            rows.append(Row(name, skipped=str(reason)))
    return rows


def as_json(rows, programs, machine, date):
    return {
        "machine": machine,
        "date": date,
        "quick": programs.quick,
        "rows": [{"row": row.name.strip(), "yardstick": row.yardstick, "ronde": row.ronde,
                  "ratio": row.ratio.median if row.ratio else None,
                  "ratios": row.ratio.values if row.ratio else [],
                  "must": row.must, "floor": row.floor.median if row.floor else None,
                  "verdict": row.verdict, "error": row.error} for row in rows],
        "raw": programs.raw,
    }


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin", help="the folder of the programs")
    parser.add_argument("--row", action="append", choices=list(GROUPS), metavar="NAME",
                        help="measure only these rows (repeatable): " + " ".join(GROUPS))
    parser.add_argument("--quick", action="store_true",
                        help="take 2 short repetitions, which show that it runs; the verdicts then mean little")
    parser.add_argument("--json", metavar="FILE", help="write the rows and every sample to this file")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)

    def log(text):
        print(text, file=sys.stderr, flush=True)

    programs = Programs(options.bin, log, options.quick)
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    machine = machine_text()
    busy = note_busy_machine(log)
    rows = measure(Bench(programs), options.row or list(GROUPS), log)
    busy = note_busy_machine(log) or busy
    print(f"{machine}, {date}; f32 sums in place, 2 ranks unless a row says otherwise; medians of "
          f"{programs.repetitions} interleaved repetitions (range), of at most {cnn.REPETITIONS} for the CNN and "
          "servers")
    print("\n".join(table(rows)))
    print("\n".join(legend(rows)))
    if busy:
        print("warning: other programs used this machine before or after the measurements")
    if options.json:
        document = as_json(rows, programs, machine, date)
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
