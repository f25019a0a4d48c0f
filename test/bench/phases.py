# SPDX-License-Identifier: Apache-2.0
"""The rows about where a blocking allreduce of 8 bytes by name spends its time: what the timeline of a job says, whose
writing is in it. A phase ends when the slower rank has come to its end."""
import json
import pathlib
import statistics
import tempfile

from programs import Series
from report import Row, spread

# The moment with which each ends, as they lie in the file: (category, where in the event).
PHASES = {"arrival: checks and name": ("NEGOTIATE_ALLREDUCE", "begin"),
          "ring and decision": ("NEGOTIATE_ALLREDUCE", "end"),
          "batch": ("ALLREDUCE", "begin"),
          "data": ("ALLREDUCE", "end"),
          "wake": ("MARK", "end")}


def moments(events, category, where):
    """In microseconds, by rank and call."""
    of_rank = {}
    for event in events:
        if event.get("cat") != category or event["ph"] == ("B" if where == "end" else "E"):
            continue
        of_rank.setdefault(event["pid"], []).append(event["ts"] + (event.get("dur", 0.0) if where == "end" else 0.0))
    return list(of_rank.values())


def slower(ranks):
    return [max(of_call) for of_call in zip(*ranks, strict=True)]


def phases_of(events):
    """The median microseconds of each phase, and of the whole."""
    before = begin = slower(moments(events, "MARK", "begin"))
    times = {}
    for name, (category, where) in PHASES.items():
        end = slower(moments(events, category, where))
        times[name] = statistics.median(late - early for early, late in zip(before, end, strict=True))
        before = end
    times["in all"] = statistics.median(late - early for early, late in zip(begin, before, strict=True))
    return times


def rows(bench):
    found = {}
    for _ in range(bench.programs.repetitions):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "phases.json"
            for name, us in phases_of(json.loads(bench.programs.timeline(2, file))).items():
                found.setdefault(name, []).append(us)
    whole = Series(found["in all"])
    for name, values in found.items():
        yield Row(f"  8 B by name: {name}", "", spread(Series(values), " us"), Series(values).over(whole))
