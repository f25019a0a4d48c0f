# SPDX-License-Identifier: Apache-2.0
"""Jobs over hosts of test/hosts/run, for the tests beside it."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

RUN = (sys.executable, "-B", str(pathlib.Path(__file__).resolve().parent / "run"))


class Job:
    """Which ranks are on which host: of "2:2,1:node" two ranks on the first host and one on the second,
    laid out one on each host in turn."""

    def __init__(self, text):
        self.text = text
        hosts, self.ranks, *rest = text.split(":")
        self.hosts, self.map_by = int(hosts), rest[0] if rest else "slot"
        free = [int(count) for count in self.ranks.split(",")]
        free = free * self.hosts if len(free) == 1 else free
        self.counts = list(free)
        self.host_of = []
        while any(free):
            for host in range(self.hosts):
                take = free[host] if self.map_by == "slot" else min(free[host], 1)
                free[host] -= take
                self.host_of += [host] * take

    @property
    def size(self):
        return len(self.host_of)

    @property
    def leaders(self):
        return [self.host_of.index(host) for host in self.host_of]

    def run(self, *command, settings=None, seconds=120, flags=(), whole=True):
        """One run; `settings` are of Ronde's environment, the same on every rank. Unless it is a whole job, something
        keeps it from starting, which is what its test is about."""
        settings = settings or {}
        line = [*RUN, "--hosts", str(self.hosts), "--ranks", self.ranks, "--map-by", self.map_by, *flags]
        for name in settings:
            line += ["--mpirun=-x", f"--mpirun={name}"]
        line += ["--", *map(str, command)]
        done = late.run(line, seconds, f"the job {self.text}", env=dict(os.environ, **settings))
        if done.returncode == late.SKIPPED:
            print(done.stderr.strip())
            sys.exit(late.SKIPPED)
        if whole and done.returncode != 0:
            late.unless_started(done.stderr, done.returncode)
        return done


def expect(condition, done, what):
    """Fails with the whole output of the job."""
    if not condition:
        sys.exit(f"{what}\ncommand: {' '.join(done.args)}\nexit code: {done.returncode}, after {done.seconds:.1f} s\n"
                 f"--- stdout\n{done.stdout[-6000:]}--- stderr\n{done.stderr[-6000:]}")
