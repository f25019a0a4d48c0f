# SPDX-License-Identifier: Apache-2.0
"""The picture of ./dev scaling: a panel for each program, a bar for each layout of hosts. Its shapes draw others too."""

import html
import math

WIDTH = 1100
LEFT, RIGHT = 190, 420  # room for the names of the layouts, and for the figures behind the bars
BAR, STEP = 16, 34
COMPUTE, WAIT, TRANSFER, GUIDE = "#3b6fb6", "#e08e3c", "#3f9b5f", "#bbbbbb"


def text(x, y, content, *, size=13, anchor="start", fill="#222"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">'
            f"{html.escape(content)}</text>")


def rectangle(x, y, width, height, fill):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>'


def document(width, height, shapes):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(shapes) + "\n</svg>\n")


def tick_step(most):
    """A round number of which 3 to 8 make up the axis."""
    power = 10 ** math.floor(math.log10(most / 3))
    return next(factor * power for factor in (1, 2, 5, 10) if most / (factor * power) <= 8)


class Panel:
    """Bars over a time axis. `unit` is (its seconds, its name)."""

    def __init__(self, top, title, unit, most):
        self.unit, self.most = unit, most
        self.shapes = [text(10, top + 16, title, size=15)]
        self.first = self.y = top + 34

    def x(self, seconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.most

    def name(self, content):
        self.shapes.append(text(LEFT - 10, self.y + 13, content, anchor="end"))

    def bar(self, row, cores):
        self.name(row.case.layout)
        if row.error:
            self.shapes.append(text(LEFT + 6, self.y + 13, "not measured", fill="#a00"))
            self.y += STEP
            return
        begin, seconds = LEFT, row.whole_seconds
        for share, color in ((row.compute, COMPUTE), (row.wait, WAIT)):
            width = self.x(seconds * share) - LEFT
            self.shapes.append(rectangle(begin, self.y, width, BAR, color))
            begin += width
        self.shapes.append(rectangle(LEFT, self.y + BAR + 1, self.x(seconds * row.transfer) - LEFT, 4, TRANSFER))
        self.figures(seconds, f"{row.images_per_second:,.0f} images/s")
        note = row.note(cores)
        if note:
            self.shapes.append(text(self.x(seconds) + 8, self.y + 25, note, size=10, fill="#777"))
        self.y += STEP

    def guide(self, name, seconds):
        self.name(name)
        self.shapes.append(rectangle(LEFT, self.y, self.x(seconds) - LEFT, BAR, GUIDE))
        self.figures(seconds, "on other machines")
        self.y += STEP

    def figures(self, seconds, more):
        scale, unit = self.unit
        self.shapes.append(text(self.x(seconds) + 8, self.y + 12, f"{seconds / scale:.3g} {unit}, {more}", size=12))

    def axis(self):
        scale, unit = self.unit
        step = tick_step(self.most / scale)
        for i in range(int(self.most / scale / step + 1e-9) + 1):
            x = self.x(i * step * scale)
            self.shapes.insert(0, f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{self.first - 6}" y2="{self.y}" stroke="#ddd"/>')
            self.shapes.append(text(x, self.y + 14, f"{i * step:g}", size=11, anchor="middle", fill="#777"))
        self.shapes.append(text(self.x(self.most) + 8, self.y + 14, unit, size=11, fill="#777"))
        return self.y + 40


def panel(top, rows, cores, guide):
    """Returns the shapes of one program's bars, and where the next panel begins."""
    guide_seconds = [60 * minutes for minutes in guide]
    most = max([row.whole_seconds for row in rows if not row.error] + guide_seconds, default=1.0)
    unit = (60.0, "min") if most >= 200 else (1.0, "s")
    made = Panel(top, rows[0].case.program + (": 20 epochs divided by the hosts" if guide else
                                              f": {rows[0].case.steps} steps"), unit, most)
    for row in rows:
        made.bar(row, cores)
    for name, seconds in zip(("the guide, before", "the guide, distributed"), guide_seconds):
        made.guide(name, seconds)
    bottom = made.axis()
    return made.shapes, bottom


def picture(rows, guide_minutes, cores):
    """`rows` in the order in which they are shown; the first program is the one that the guide trains."""
    programs = list(dict.fromkeys(row.case.program for row in rows))
    shapes, top = [], 50
    shapes.append(text(10, 24, "Training on 1, 2 and 4 hosts of one machine: time, and what rank 0 did", size=17))
    for i, (name, color) in enumerate((("computes", COMPUTE), ("waits", WAIT), ("a transfer is under way", TRANSFER))):
        shapes += [rectangle(LEFT + 110 * i, 36, 12, 12, color), text(LEFT + 110 * i + 18, 47, name, size=12)]
    top += 14
    for program in programs:
        of_program = [row for row in rows if row.case.program == program]
        more, top = panel(top, of_program, cores, guide_minutes if program == programs[0] else ())
        shapes += more
    return document(WIDTH, top, shapes)
