# SPDX-License-Identifier: Apache-2.0
"""The rows that compare MPI and UCX between hosts, measured in turns."""

import functools

from programs import ProgramError, Series, joined
from report import MIB, Row, size_text, spread

TRANSPORTS = ("mpi", "ucx")


def in_turns(repetitions, turns):
    """Calls each function of {name: function} once in a repetition, each repetition beginning with another; returns
    {name: [result of a repetition, ...]}."""
    results = {name: [] for name in turns}
    names = list(turns)
    for repetition in range(repetitions):
        first = repetition % len(names)
        for name in names[first:] + names[:first]:
            results[name].append(turns[name]())
    return results


class Transports:
    """Measures with the programs of a run, over each of these hosts."""

    def __init__(self, programs, hosts):
        self.programs, self.hosts = programs, hosts

    def over_transports(self, measure):
        """Measures over MPI and over UCX in turns; returns {hosts: {transport: [result of a repetition, ...]}}."""
        return {hosts: in_turns(self.programs.repetitions,
                                {transport: functools.partial(measure, hosts.over(transport))
                                 for transport in TRANSPORTS})
                for hosts in self.hosts}

    def transport_times(self, iterations, *arguments):
        def measure(hosts):
            return self.programs.perf_times(hosts, *arguments, iterations=iterations, repetitions=1)
        for hosts, results in self.over_transports(measure).items():
            yield hosts, {transport: joined(turns) for transport, turns in results.items()}

    def large(self):
        for hosts, times in self.transport_times(2, "-b", "16M", "-e", "64M", "-f", "4", "--against", "line"):
            for size in (16 * MIB, 64 * MIB):
                mpi, ucx = times["mpi"][size, "ronde"], times["ucx"][size, "ronde"]
                line = times["ucx"][size, "line"]
                yield Row(f"{hosts}, UCX, {size_text(size)}, share of the line", f"line {spread(line, ' us')}",
                          spread(ucx, " us"), line.over(ucx), ">=", 0.95)
                yield Row(f"{hosts}, UCX, {size_text(size)}, to MPI", f"mpi {spread(mpi, ' us')}", spread(ucx, " us"),
                          ucx.over(mpi))

    def small(self):
        for hosts, times in self.transport_times(200, "-b", "8", "-e", "32K", "-f", "8"):
            for size in sorted({size for size, _ in times["ucx"]}):
                mpi, ucx = times["mpi"][size, "ronde"], times["ucx"][size, "ronde"]
                yield Row(f"{hosts}, UCX, {size_text(size)}, to MPI", f"mpi {spread(mpi, ' us')}", spread(ucx, " us"),
                          ucx.over(mpi), "<=", 1.25)

    def cpu(self):
        turns = "2" if self.programs.quick else "10"

        def measure(hosts):
            return self.programs.engine(hosts, "cpu", str(16 * MIB), turns)
        for hosts, results in self.over_transports(measure).items():
            if any(result["wrong"] for each in results.values() for result in each):
                raise ProgramError(f"wrong results: {results}")
            mpi, ucx = (Series([result["cpu_s_per_gib"] for result in results[transport]])
                        for transport in TRANSPORTS)
            yield Row(f"{hosts}, UCX, CPU seconds of all ranks per GiB, to MPI", f"mpi {spread(mpi, ' s')}",
                      spread(ucx, " s"), ucx.over(mpi), "<=", 0.5)
