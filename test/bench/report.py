# SPDX-License-Identifier: Apache-2.0
"""A row of ./dev bench, the rule by which it is missed, and the table that is printed."""

import dataclasses

from programs import Series

KIB = 1 << 10
MIB = 1 << 20

OK = "ok"
MISSED = "MISSED"
MACHINE = "machine"  # missed, and the floor misses it too
REPORT = "report"  # the row has nothing to reach
ELSEWHERE = "elsewhere"  # the yardstick was measured on another machine, so the row decides nothing
FAILED = "FAILED"  # a program did not run
SKIPPED = "skipped"  # this machine does not allow the measurement


@dataclasses.dataclass
class Row:
    """One line of the table. `ratio` is compared with `limit`: `wants` says whether it is at least or at most."""

    name: str
    yardstick: str = ""
    ronde: str = ""
    ratio: Series | None = None
    wants: str = ">="
    limit: float | None = None
    floor: Series | None = None  # the ratio that the floor reaches in the same run
    elsewhere: bool = False  # the yardstick is a figure that was typed in
    error: str = ""
    skipped: str = ""

    def __post_init__(self):
        if self.elsewhere and self.limit is not None:
            raise ValueError(f"{self.name}: a figure from another machine decides nothing, so it has no limit")

    def reaches(self, series):
        return series.median >= self.limit if self.wants == ">=" else series.median <= self.limit

    @property
    def verdict(self):
        if self.error:
            return FAILED
        if self.skipped:
            return SKIPPED
        if self.elsewhere:
            return ELSEWHERE
        if self.limit is None:
            return REPORT
        if self.reaches(self.ratio):
            return OK
        if self.floor is not None and not self.reaches(self.floor):
            return MACHINE
        return MISSED

    @property
    def must(self):
        return "" if self.limit is None else f"{self.wants} {number(self.limit)}"


def number(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"


def spread(series, unit=""):
    """The median and the range of the repetitions, as text; a single value has no range."""
    if len(series.values) == 1:
        return number(series.median) + unit
    low, high = number(min(series.values)), number(max(series.values))
    return f"{number(series.median)}{unit} ({low}..{high})"


def no_slower(name, times, size, yardstick, limit=None, ours="ronde"):
    """Ronde takes at most `limit` times the yardstick's time; without one the row is printed and decides nothing."""
    ronde, theirs = times[size, ours], times[size, yardstick]
    return Row(name, f"{yardstick} {spread(theirs, ' us')}", spread(ronde, " us"), ronde.over(theirs), "<=", limit)


def beside(name, times, size, yardstick):
    """The ratio to the yardstick without a limit: the row is printed and decides nothing."""
    ronde, theirs = times[size, "ronde"], times[size, yardstick]
    return Row(name, f"{yardstick} {spread(theirs, ' us')}", spread(ronde, " us"), theirs.over(ronde))


def size_text(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def table(rows):
    """The rows as lines of text."""
    head = ["row", "yardstick", "Ronde", "ratio (range)", "must reach", "floor", "verdict"]
    cells = [head]
    for row in rows:
        cells.append([row.name, row.yardstick, row.ronde,
                      spread(row.ratio) if row.ratio else "", row.must,
                      number(row.floor.median) if row.floor else "",
                      row.verdict])
    return aligned(cells)


def aligned(cells):
    """The cells of a table as lines of text; the first line is the head."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = [" | ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
             for line in cells]
    lines.insert(1, "-|-".join("-" * width for width in widths))
    return lines


def legend(rows):
    verdicts = {row.verdict for row in rows}
    if MACHINE in verdicts:
        yield ("machine: Ronde misses the row, and so does the floor in the same run. The floor is the same memory "
               "traffic with no runtime around it; for training it is twice the slower of two ranks that run apart")
    if ELSEWHERE in verdicts:
        yield "elsewhere: the yardstick was measured on another machine; it is shown and decides nothing"
    for row in rows:
        if row.verdict == SKIPPED:
            yield f"skipped: {row.name}: {row.skipped}"
    missed = [row.name.strip() for row in rows if row.verdict == MISSED]
    failed = [row.name.strip() for row in rows if row.verdict == FAILED]
    if missed:
        yield "these rows are missed: " + "; ".join(missed)
    if failed:
        yield "these rows did not run: " + "; ".join(failed)
    if not missed and not failed:
        yield "no row is missed"


def exit_code(rows):
    return 1 if any(row.verdict in (MISSED, FAILED) for row in rows) else 0
