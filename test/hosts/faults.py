#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs over several hosts in which something breaks: a rank is killed, a rank stands still, a host's line
is cut. Every other rank, but those of a host that is cut off, must report the same culprit within the
deadline and end by itself, whatever the moment of the fault.

usage: faults.py WORKER KIND:HOSTS:RANKS:VICTIM:MOMENT[:CARRIER]...
KIND is kill, stop or cut; RANKS is what test/hosts/run takes; VICTIM is a rank; MOMENT is ring (in the middle
of a large allreduce), small (in a stream of small ones, mostly between submitting and agreeing), or one of
STARTS, with start_worker as WORKER. CARRIER is mpi, ucx, or hand: started by hand, and so over UCX.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

RUN = pathlib.Path(__file__).resolve().parent / "run"
START = 120.0
# How long until a rank knows: of a death at once, of a rank that stands still after the stall deadline and
# the questions that follow it, of a silent line after LINK_SECONDS.
STALL_SECONDS = {"kill": 600, "stop": 3, "cut": 600}
LIMIT = 60.0  # on a machine on which ranks get no core for seconds
LINK_SECONDS = 5
SIGNALS = {"kill": 9, "stop": 19, "cut": 0}  # 0 does nothing: striking only leaves its mark
EXIT_FAILED_JOB = 3
# While the engines open: so many collectives of the start have ended for the victim (see start_worker.cc).
STARTS = {"join": 0, "greet": 5, "meet": 7, "enter": 9}
START_TIMEOUT = 5.0

# A file gets its name when it is whole: a shell makes it empty before it writes.
KEEP_CODE = ('"$@"; code=$?; file=$FOLDER/rank-$OMPI_COMM_WORLD_RANK; '
             'hostname >"$file.host"; echo $code >"$file.tmp"; mv "$file.tmp" "$file.code"; exit $code')


class Fault:
    def __init__(self, worker, text):
        self.kind, hosts, self.ranks, victim, self.moment, *carrier = text.split(":")
        self.carrier = carrier[0] if carrier else "mpi"
        self.hosts, self.victim = int(hosts), int(victim)
        counts = [int(count) for count in self.ranks.split(",")]
        counts = counts * self.hosts if len(counts) == 1 else counts
        self.host_of = [host for host, count in enumerate(counts) for _ in range(count)]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ronde_hosts_"))
        self.job = self.start(worker)

    def start(self, worker):
        names = {"FOLDER": str(self.folder), "RONDE_STALL_FAILURE_SECONDS": str(STALL_SECONDS[self.kind]),
                 "RONDE_STALL_WARNING_SECONDS": "1", "RONDE_LINK_TIMEOUT_SECONDS": str(LINK_SECONDS)}
        if self.carrier != "hand":
            names["RONDE_TRANSPORT"] = self.carrier
        if self.moment in STARTS:
            names["RONDE_START_TIMEOUT_SECONDS"] = str(START_TIMEOUT)
        command = [sys.executable, "-B", str(RUN), "--hosts", str(self.hosts), "--ranks", self.ranks,
                   "--mpirun=--enable-recovery"]
        for name in names:
            command += ["--mpirun=-x", f"--mpirun={name}"]
        if self.kind == "cut":
            command += ["--cut", f"{self.host_of[self.victim] + 1}:{self.folder}/struck"]
        words = {"ring": ("bytes=16777216", "at=4", "after=0.05"), "small": ("bytes=8", "at=300", "after=0")}
        by_hand = [str(RUN.with_name("launched")), "hand"] if self.carrier == "hand" else []
        command += ["--", "sh", "-c", KEEP_CODE, "sh", *by_hand, worker, f"folder={self.folder}", f"victim={self.victim}",
                    f"signal={SIGNALS[self.kind]}", *words.get(self.moment, [f"after={STARTS.get(self.moment)}"])]
        self.log = open(self.folder / "log", "w", encoding="utf-8", errors="replace")
        return subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT,
                                env=dict(os.environ, **names))

    def fail(self, why):
        late.kill(self.job)
        said = self.output()
        for file in sorted(self.folder.glob("rank-*")):
            said += f"--- {file.name}\n{file.read_text(errors='replace')}"
        print(said[-12000:])
        if not self.read("struck"):
            codes = [self.read(f"rank-{rank}.code") for rank in range(len(self.host_of))]
            # Without the code of a rank that of the launcher counts, which is ended where it hangs.
            late.unless_started(said, *(int(code) for code in codes if code is not None),
                                *([self.job.returncode] if None in codes else []))
        sys.exit(why)

    def output(self):
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def read(self, name):
        try:
            return (self.folder / name).read_text()
        except OSError:
            return None

    def runs(self):
        """Whether a rank may still do something."""
        code = self.job.poll()
        if code == late.SKIPPED:
            print(self.output().strip())
            sys.exit(late.SKIPPED)
        return code is None and not all(self.read(f"rank-{rank}.code") for rank in range(len(self.host_of)))

    def wait_for(self, condition, seconds, what):
        try:
            late.until(condition, seconds, what, self.runs)
        except AssertionError as error:
            self.fail(str(error))

    def check(self):
        self.wait_for(lambda: self.read("struck"), START, "the blow")
        struck = int(self.read("struck")) / 1e9
        cut_off = [rank for rank, host in enumerate(self.host_of)
                   if self.kind == "cut" and host == self.host_of[self.victim]]
        others = [rank for rank in range(len(self.host_of)) if rank != self.victim and rank not in cut_off]
        limit = max(LIMIT, 15 * START_TIMEOUT if self.moment in STARTS else 0)
        ended = others + cut_off  # the ranks that are cut off notice it too
        self.wait_for(lambda: all(self.read(f"rank-{rank}.code") for rank in ended), limit, f"the end of ranks {ended}")
        slowest = 0.0
        for rank in others:
            verdict = dict(line.split("=", 1) for line in self.read(f"rank-{rank}.verdict").splitlines())
            if int(self.read(f"rank-{rank}.code")) != EXIT_FAILED_JOB:
                self.fail(f"rank {rank} ended with code {self.read(f'rank-{rank}.code').strip()}")
            # To the others a cut line looks like a failed leader.
            culprit = min(cut_off) if cut_off else self.victim
            if verdict.get("culprit") is None:
                self.fail(f"rank {rank} has noticed nothing")
            if verdict["culprit"] != str(culprit):
                self.fail(f"rank {rank} blames rank {verdict['culprit']}, not {culprit}")
            # A connection that fails while the hosts meet is named by its ends.
            ends = rf"host {self.host_of[culprit]} \(ronde-[0-9]+-[0-9]+, 10\..* host [0-9]+ \(ronde-[0-9]+-[0-9]+, .*10\."
            connection = self.kind == "cut" and self.moment == "meet" and re.search(ends, verdict["text"])
            if not connection and (f"rank {culprit}" not in verdict["text"] or "ronde-" not in verdict["text"]):
                self.fail(f"rank {rank} names no rank and host: {verdict['text']}")
            slowest = max(slowest, int(verdict["failed_ns"]) / 1e9 - struck)
            self.last = verdict["text"]
        print(f"{self.kind} of rank {self.victim} on {self.hosts} hosts of {self.ranks} ({self.moment}, {self.carrier}): "
              f"the last of {len(others)} knew after {slowest:.2f} s: {self.last}", flush=True)
        # mpirun itself stays, with --enable-recovery, when other hosts are in the job.
        late.kill(self.job)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    for text in sys.argv[2:]:
        Fault(sys.argv[1], text).check()


if __name__ == "__main__":
    late.end(main)
