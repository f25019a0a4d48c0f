# SPDX-License-Identifier: Apache-2.0
"""The rows on how long an engine takes to open, by hand and under mpirun in turns."""

import functools

from programs import Series
from report import Row, spread
from transports import in_turns

LAUNCHERS = ("by hand", "mpirun")


def rows(programs):
    """The time that the slowest of 2 ranks is in the constructor of its engine; and that of the whole job beside it."""
    results = in_turns(programs.repetitions,
                       {launcher: functools.partial(programs.opening, launcher) for launcher in LAUNCHERS})

    def both(name):
        return (Series([result[name] for result in results[launcher]]) for launcher in LAUNCHERS)
    by_hand, mpirun = both("opening_s")
    yield Row("opening an engine, 2 ranks by hand [s]", f"mpirun {spread(mpirun, ' s')}", spread(by_hand, " s"), by_hand,
              "<=", 0.1)
    by_hand, mpirun = both("job_s")
    yield Row("  from start to end of such a job, to mpirun", f"mpirun {spread(mpirun, ' s')}", spread(by_hand, " s"),
              by_hand.over(mpirun))
