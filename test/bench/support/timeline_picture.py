#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of a timeline: two ranks train a small network, and one step of it is drawn as an SVG.

    timeline_picture.py TRACE SVG     (needs numpy; with LIBRONDE and PYTHONPATH as for any program in Python)
"""
import html
import json
import sys
import threading

import numpy

import ronde
from ronde import _messages, _numpy

LAYERS = [(784, 512), (512, 256), (256, 10)]
STEPS, DRAWN, ROWS = 6, 4, 64  # steps, the one that is drawn, and samples of a rank
LEFT, WIDTH, HIGH = 190, 760, 20  # of the picture
COLOURS = {"MARK": "#8da0cb", "NEGOTIATE": "#fc8d62", "QUEUE": "#cccccc", "BATCH": "#66c2a5", "PHASE": "#a6d854",
           "MESSAGE": "#e78ac3"}


def train(engine):
    """Plain steps: each gradient leaves as soon as backward has it; then rank 0 tells its loss to rank 1, and a process
    set sums it."""
    random = numpy.random.default_rng(engine.rank)
    weights = [numpy.full(shape, 0.01, numpy.float32) for shape in LAYERS]
    pair = engine.subset([0, 1], "pair")
    for step in range(STEPS):
        with engine.marked(f"step {step}"):
            values, works = [random.standard_normal((ROWS, LAYERS[0][0]), numpy.float32)], []
            with engine.marked("forward"):
                for weight in weights:
                    values.append(numpy.maximum(values[-1] @ weight, 0))
            with engine.marked("backward"):
                error = values[-1] - 1
                for layer in reversed(range(len(LAYERS))):
                    works.append(engine.allreduce(f"fc{layer}/weight", values[layer].T @ error))
                    error = (error @ weights[layer].T) * (values[layer] > 0)
            for layer, work in zip(reversed(range(len(LAYERS))), works):
                weights[layer] -= 1e-4 * work.wait()
            loss = numpy.array([numpy.square(error).mean()])
            move = _messages.send if engine.rank == 0 else _messages.receive
            move(engine, 1 - engine.rank, 0, _numpy.NumpyArrays().memory(loss), "loss").wait(None)
            pair.allreduce("loss", loss).wait()
    pair.close()


def run(path):
    job = ronde.LocalJob(2)

    def rank_main(rank):
        with ronde.Engine(job, rank) as engine:
            engine.start_timeline(path)
            engine.barrier("start").wait()
            train(engine)
            engine.stop_timeline()

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def slices_of(events):
    """(rank, row, name, category, begin, end) of each slice; marks and messages have an event for each end."""
    rows = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
    begun = {}
    for one in sorted((one for one in events if "ts" in one), key=lambda one: one["ts"]):
        rank, row, kind = one["pid"], rows.get((one["pid"], one["tid"]), ""), one["ph"]
        key = (rank, one["name"], one.get("id"))
        if kind == "X":
            yield rank, row, one["name"], one["cat"], one["ts"], one["ts"] + one["dur"]
        elif kind in "Bb":
            begun[key] = one["ts"]
        elif kind in "Ee":
            yield rank, "messages" if kind == "e" else "marks", one["name"], one["cat"], begun.pop(key), one["ts"]


def draw(slices):
    window = [one for one in slices if one[2] == f"step {DRAWN}"]
    first, last = min(one[4] for one in window), max(one[5] for one in window)
    shown = sorted((one for one in slices if one[5] > first and one[4] < last and not one[2].startswith("step ")),
                   key=lambda one: (one[0], one[4] - one[5]))
    places, boxes, height = {}, [], 30
    for rank in (0, 1):
        names = sorted({one[1] for one in shown if one[0] == rank},
                       key=lambda row: (row != "marks", not row.startswith("allreduce"), row))
        boxes.append(f'<text x="4" y="{height + 14}" font-weight="bold">rank {rank}</text>')
        height += HIGH
        for row in names:
            places[rank, row] = height
            boxes.append(f'<text x="12" y="{height + 13}">{html.escape(row)}</text>')
            height += HIGH
    for rank, row, name, category, begin, end in shown:
        begin, end = max(begin, first), min(end, last)
        x, wide = LEFT + (begin - first) / (last - first) * WIDTH, max((end - begin) / (last - first) * WIDTH, 0.5)
        colour = COLOURS.get(category.split("_")[0], "#ffd92f")
        y = places[rank, row]
        boxes.append(f'<rect x="{x:.1f}" y="{y + 1}" width="{wide:.1f}" height="{HIGH - 3}" fill="{colour}">'
                     f"<title>{html.escape(name)}, {end - begin:.0f} us</title></rect>")
        if wide > 6.5 * len(name):
            boxes.append(f'<text x="{x + 3:.1f}" y="{y + 13}">{html.escape(name)}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 10} {height + 10}" '
            'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n'
            f'<text x="{LEFT}" y="18">one step of two ranks: {(last - first) / 1000:.1f} ms</text>\n'
            + "\n".join(boxes) + "\n</svg>\n")


def main():
    trace, picture = sys.argv[1:]
    run(trace)
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)
    with open(picture, "w", encoding="utf-8") as file:
        file.write(draw(list(slices_of(events))))


if __name__ == "__main__":
    main()
