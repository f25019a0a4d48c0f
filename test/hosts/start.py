#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a job over several hosts starts, and how it fails to: every rank reports the same error, with all that
one needs to correct it.

usage: start.py WORKER CHECK      (start_worker; unreachable, tree, ...)
"""
import pathlib
import re
import sys
import tempfile

import hosts_job
from hosts_job import late


class Start:
    """A job of the worker, and what each rank has reported."""

    def __init__(self, worker, text, *words, each="", settings=None):
        """`each`: shell commands that every rank runs first; $OMPI_COMM_WORLD_RANK is its number."""
        self.job = hosts_job.Job(text)
        with tempfile.TemporaryDirectory(prefix="ronde_hosts_") as folder:
            self.done = self.job.run("sh", "-c", f'{each}\nexec "$@"', "sh", worker, f"folder={folder}", *words,
                                     settings=settings, whole=not each)
            files = [pathlib.Path(folder) / f"rank-{rank}.verdict" for rank in range(self.job.size)]
            self.notes = [file.read_text(encoding="utf-8") if file.exists() else "nothing" for file in files]
        for rank, note in enumerate(self.notes):
            print(f"{text}, rank {rank}: {note.strip()}", flush=True)

    def expect(self, condition, what):
        hosts_job.expect(condition, self.done, what + "\n" + "".join(self.notes))

    def expect_started(self):
        """On every rank, and nothing listens any more."""
        self.expect(self.done.returncode == 0, "the job failed")
        self.expect(all(note == "status=done\nstill=0\n" for note in self.notes), "a rank listens after the start")

    def expect_refused(self, *patterns):
        """Every rank must say why, in one line. Half of the time is left for the exchange of verdicts; mpirun needs some
        of its own."""
        self.expect(self.done.returncode not in (0, 124, 134, 139), "expected an orderly failure")
        late.at_most(self.done.seconds, 40, "the failure")
        for note in self.notes:
            self.expect(re.search(r"\ntext=[^\n]*\n$", note), "expected one line of each rank")
            for pattern in patterns:
                self.expect(re.search(pattern, note), f"expected {pattern} in: {note}")


def check_unreachable(worker):
    """The root of the hosts, or all of them, listen where no other host can connect."""
    limit = {"RONDE_START_TIMEOUT_SECONDS": "8"}
    lo = "export RONDE_INTERFACE=lo"
    for text, each in (("2:1", lo), ("3:1", f"[ $OMPI_COMM_WORLD_RANK != 0 ] || {lo}"), ("2:2", lo)):
        start = Start(worker, text, each=each, settings=limit)
        pattern = r"host 1 \(ronde-\d+-2, \S+:\d+.*\) did not connect to host 0 \(ronde-\d+-1, 127\.0\.0\.1:\d+"
        start.expect_refused(pattern, "check the firewall between them", "RONDE_INTERFACE")
        if start.job.hosts == 3:
            start.expect_refused(r"host 2 \(ronde-\d+-3, 10\.213\.0\.3:\d+")


def check_tree(worker):
    """More hosts than a leader has children: the last one's parent is host 1, which can be out of reach too."""
    hosts = 18
    Start(worker, f"{hosts}:1").expect_started()
    start = Start(worker, f"{hosts}:1", each="[ $OMPI_COMM_WORLD_RANK != 1 ] || export RONDE_INTERFACE=lo",
                  settings={"RONDE_START_TIMEOUT_SECONDS": "12"})
    # Both ends notice, and the error of either may be reported.
    last, above = r"host 17 \(ronde-\d+-18, 10\.213\.0\.18:\d+\)", r"host 1 \(ronde-\d+-2"
    down = rf"{last} did not connect to {above}, 127\.0\.0\.1:\d+"
    up = rf"{last} could not connect to {above}; tried 127\.0\.0\.1:\d+"
    start.expect_refused(f"{down}|{up}", "check the firewall between them")


def check_interface(worker):
    """A name that no interface has, on all ranks or on one leader."""
    for text, victim in (("2:2", 0), ("2:2", 2), ("2:2,1:node", 1)):
        condition = "true" if victim == 0 else f"[ $OMPI_COMM_WORLD_RANK = {victim} ]"
        start = Start(worker, text, each=f"if {condition}; then export RONDE_INTERFACE=eht0; fi")
        host = start.job.host_of[victim] + 1
        start.expect_refused(f"RONDE_INTERFACE names 'eht0', which no interface of host ronde-[0-9]+-{host} matches",
                             rf"there are: .*lo \(127\.0\.0\.1/8\).*eth0 \(10\.213\.0\.{host}/24\)",
                             f"rank {victim} cannot start")
    # One that they have, by name and by network.
    for wanted in ("eth0", "10.213.0.0/16"):
        Start(worker, "2:1", settings={"RONDE_INTERFACE": wanted}).expect_started()


def check_settings(worker):
    """The ranks of one host have others than those of the other."""
    start = Start(worker, "2:2", each="export RONDE_BATCH_BYTES=$((1000 + OMPI_COMM_WORLD_RANK / 2))")
    start.expect_refused("RONDE_BATCH_BYTES=1000 on ranks 0-1, RONDE_BATCH_BYTES=1001 on ranks 2-3")


def check_thread_levels(worker):
    """Programs that have started MPI for some threads alone: for one, it has to drive the engine itself."""
    for text, level in (("2:2", "single"), ("2:2", "funneled"), ("3:1", "funneled"), ("2:2", "serialized"),
                        ("3:1", "multiple")):
        start = Start(worker, text, f"level={level}")
        start.expect_started()
        told = 1 if level in ("single", "funneled") else 0
        warnings = start.done.stderr.count(f"MPI_THREAD_{level.upper()}")
        start.expect(warnings == told, f"MPI started as {level}: {warnings} warnings")


def main():
    worker, check = sys.argv[1:]
    globals()[f"check_{check}"](worker)


if __name__ == "__main__":
    late.end(main)
