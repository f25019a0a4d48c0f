# SPDX-License-Identifier: Apache-2.0
"""What a row of ./dev bench is, when it is missed, and how rows are printed."""

import dataclasses

from programs import Series

KIB = 1 << 10
MIB = 1 << 20

OK = "ok"
MISSED = "MISSED"
MACHINE = "machine"  # missed, and the floor misses it too
REPORT = "report"  # nothing to reach
CONSTANT = "constant"  # the yardstick was measured elsewhere
FAILED = "FAILED"  # a program did not run
SKIPPED = "skipped"  # this machine does not allow it


@dataclasses.dataclass
class Row:
    """One line. `ratio` is compared with `limit`: at least or at most, as `wants` says."""

    name: str
    yardstick: str = ""
    ronde: str = ""
    ratio: Series | None = None
    wants: str = ">="
    limit: float | None = None
    floor: Series | None = None  # the same ratio, of the floor
    constant: bool = False
    error: str = ""
    skipped: str = ""

    def reaches(self, series):
        return series.median >= self.limit if self.wants == ">=" else series.median <= self.limit

    @property
    def verdict(self):
        if self.error:
            return FAILED
        if self.skipped:
            return SKIPPED
        if self.limit is None:
            return REPORT
        if self.constant:
            return CONSTANT
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
    """The median, and the range of the repetitions."""
    low, high = number(min(series.values)), number(max(series.values))
    return f"{number(series.median)}{unit} ({low}..{high})"


def size_text(size):
    for unit, name in ((MIB, "MiB"), (KIB, "KiB")):
        if size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def table(rows):
    """Lines of text."""
    head = ["row", "yardstick", "Ronde", "ratio (range)", "must reach", "floor", "verdict"]
    cells = [head]
    for row in rows:
        cells.append([row.name, row.yardstick, row.ronde,
                      spread(row.ratio) if row.ratio else "", row.must,
                      number(row.floor.median) if row.floor else "",
                      row.verdict])
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    lines = [" | ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
             for line in cells]
    lines.insert(1, "-|-".join("-" * width for width in widths))
    return lines


def legend(rows):
    verdicts = {row.verdict for row in rows}
    if MACHINE in verdicts:
        yield ("machine: missed, and the floor (the same memory traffic with no runtime around it; of the "
               "MLP, twice the slower of two ranks apart) misses it too, in the same run")
    if CONSTANT in verdicts:
        yield "constant: the yardstick was measured elsewhere; it does not decide"
    for row in rows:
        if row.verdict == SKIPPED:
            yield f"skipped: {row.name}: {row.skipped}"
    missed = [row.name.strip() for row in rows if row.verdict == MISSED]
    failed = [row.name.strip() for row in rows if row.verdict == FAILED]
    if missed:
        yield "missed: " + "; ".join(missed)
    if failed:
        yield "did not run: " + "; ".join(failed)
    if not missed and not failed:
        yield "no row is missed"


def exit_code(rows):
    return 1 if any(row.verdict in (MISSED, FAILED) for row in rows) else 0
