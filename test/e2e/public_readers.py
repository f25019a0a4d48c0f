#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training leaves behind, read by those whose formats it has: TensorBoard and Python's safetensors; and a file
of tensors from Python, read by Ronde.

usage: public_readers.py PROGRAM      (PROGRAM: public_formats)

Downloads both libraries from PyPI into a folder of the user's cache, once: a test of ./dev test full.
"""
import json
import os
import pathlib
import sys
import tempfile

import from_pypi
from programs import late

PACKAGES = ("tensorboard==2.21.0", "safetensors==0.8.0", "numpy==2.4.6")
SECONDS = 120

# As public_formats.cc writes them: the second run takes the first one's place from step 40 on.
LOSSES = [(step, step + (0.25 if step < 40 else 0.5)) for step in range(0, 90, 10)]
FLAGS = [(0, "| flag | value |\n|---|---|\n| run | 1 |"), (40, "| flag | value |\n|---|---|\n| run | 2 |")]


def expect(actual, expected, what):
    if actual != expected:
        sys.exit(f"{what}:\nexpected {expected}\n     got {actual}")


def run(program, *arguments, code=0):
    done = late.run([program, *arguments], SECONDS, encoding="utf-8")
    expect(done.returncode, code, f"exit code of {' '.join(map(str, done.args))}\n{done.stdout}{done.stderr}")
    return done


# ---- event files ----

def check_loader(logs):
    """The records of each file, one by one."""
    from tensorboard.backend.event_processing import event_file_loader
    from tensorboard.util import tensor_util
    files = sorted(logs.iterdir())
    expect(len(files), 2, f"event files in {logs}")
    for file, first, steps in zip(files, (0, 40), (range(0, 70, 10), range(40, 90, 10))):
        version, start, *events = event_file_loader.EventFileLoader(str(file)).Load()
        expect(version.file_version, "brain.Event:2", "version")
        expect((start.step, start.session_log.status), (first, start.session_log.START), "start of the session")
        expect([event.step for event in events], [first] + [step for step in steps for _ in "lr"], "steps")
        tags = {}
        for event in events:
            value = event.summary.value[0]
            tags.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
            tensor_util.make_ndarray(value.tensor)
        expect(tags, {"flags": "text", "training/loss": "scalars", "training/accuracy": "scalars"}, "tags")
        print(f"EventFileLoader: {len(events)} events in {file.name}")


def check_accumulators(logs):
    """A directory as a whole: no step twice, although the first run went on to step 60."""
    from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
    from tensorboard.util import tensor_util

    def texts(events):
        return [(event.step, tensor_util.make_ndarray(event.tensor_proto).item().decode()) for event in events]

    everything = {kind: 0 for kind in event_accumulator.DEFAULT_SIZE_GUIDANCE}
    old = event_accumulator.EventAccumulator(str(logs), size_guidance=everything).Reload()
    expect(sorted(old.Tags()["scalars"]), ["training/accuracy", "training/loss"], "tags of numbers")
    expect([(event.step, event.value) for event in old.Scalars("training/loss")], LOSSES, "losses")
    expect(texts(old.Tensors("flags")), FLAGS, "texts")
    expect(old.SummaryMetadata("flags").plugin_data.plugin_name, "text", "plug-in of the flags")

    everything = {kind: 0 for kind in plugin_event_accumulator.DEFAULT_SIZE_GUIDANCE}
    new = plugin_event_accumulator.EventAccumulator(str(logs), size_guidance=everything).Reload()
    losses = [(event.step, tensor_util.make_ndarray(event.tensor_proto).item())
              for event in new.Tensors("training/loss")]
    expect(losses, LOSSES, "losses as TensorBoard keeps them")
    expect(texts(new.Tensors("flags")), FLAGS, "texts as TensorBoard keeps them")
    print(f"EventAccumulator: {losses}")


def check_server(logs):
    """The server that TensorBoard starts for its pages."""
    from tensorboard import context
    from tensorboard.data import provider, server_ingester
    from tensorboard.util import grpc_util
    server = server_ingester.SubprocessServerDataIngester(
        server_ingester.get_server_binary(), str(logs), reload_interval=0,
        channel_creds_type=grpc_util.ChannelCredsType.LOCAL, samples_per_plugin={"scalars": 0, "text": 0})
    server.start()
    asked = {"ctx": context.RequestContext(), "experiment_id": "", "downsample": 1000,
             "run_tag_filter": provider.RunTagFilter()}

    def losses():
        points = server.data_provider.read_scalars(plugin_name="scalars", **asked).get(".", {})
        return [(point.step, point.value) for point in points.get("training/loss", [])]

    def texts():
        points = server.data_provider.read_tensors(plugin_name="text", **asked).get(".", {})
        return [(point.step, point.numpy.item().decode()) for point in points.get("flags", [])]

    for read, expected in ((losses, LOSSES), (texts, FLAGS)):
        # It loads the files while it answers.
        late.until(lambda: read() == expected, SECONDS, f"{read.__name__} of TensorBoard's server to be {expected}")
    print("TensorBoard's server: the same")


def check_events(folder):
    logs = folder / "logs"
    check_loader(logs)
    for read in (check_accumulators, check_server):
        read(logs)
    # A first run that was killed in the middle of a record.
    first = min(logs.iterdir())
    os.truncate(first, first.stat().st_size - 5)
    for read in (check_accumulators, check_server):
        read(logs)


def check_log(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    expect([(line["step"], line["loss"]) for line in lines], LOSSES, "losses in metrics.jsonl")
    expect({line["rate"] for line in lines}, {None}, "a rate that is no number")
    print(f"metrics.jsonl: {lines[-1]}")


# ---- tensors ----

def check_written_tensors(folder):
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import load_file
    limits = numpy.finfo(numpy.float32)
    expected = {
        "fc1/weight": numpy.array([[0.5, -1.25, 2], [3, -4, 1e30]], numpy.float32),
        "scalar": numpy.array(3.5, numpy.float32),
        'größe "1"/m': numpy.array([-0.0, numpy.inf, -numpy.inf, limits.max, limits.min, limits.smallest_subnormal,
                                    limits.tiny, limits.eps, numpy.nan], numpy.float32).reshape(1, 9, 1),
    }
    path = folder / "step-60" / "tensors.safetensors"
    tensors = load_file(path)
    expect(sorted(tensors), sorted(expected), "names in tensors.safetensors")
    for name, value in expected.items():
        expect((tensors[name].dtype, tensors[name].shape), (value.dtype, value.shape), f"type of {name}")
        expect(tensors[name].tobytes(), value.tobytes(), f"bytes of {name}")
    with safe_open(path, "numpy") as file:
        expect(file.metadata(), {"library": "ronde"}, "metadata")
    print("safetensors: " + ", ".join(f"{name} {value.shape}" for name, value in tensors.items()))


def check_read_tensors(program, folder):
    """Files that Python has written."""
    import numpy
    from safetensors.numpy import save_file
    path = folder / "python.safetensors"
    numbers = numpy.random.default_rng(1)
    tensors = {"conv1/weight": numbers.normal(size=(4, 3, 2, 5)).astype(numpy.float32),
               "a": numpy.array(-0.1, numpy.float32), "größe": numpy.arange(7, dtype=numpy.float32),
               "none": numpy.zeros((2, 0), numpy.float32)}
    for metadata in (None, {"format": "np", "note": "x" * 100}):
        save_file(tensors, path, metadata=metadata)
        lines = [line.split("\t") for line in run(program, "read", path).stdout.splitlines()]
        expect(sorted(name for name, *_ in lines), sorted(tensors), "names in Python's file")
        for name, sides, values in lines:
            expect(tuple(map(int, sides.split())), tensors[name].shape, f"shape of {name}")
            got = numpy.array([float.fromhex(value) for value in values.split()], numpy.float32)
            expect(got.tobytes(), tensors[name].tobytes(), f"values of {name}")
    print(f"Ronde has read {', '.join(name for name, *_ in lines)}")
    save_file({"half": numpy.zeros(3, numpy.float16)}, path)
    refused = run(program, "read", path, code=1).stderr
    expect((refused.count("\n"), str(path) in refused, "half" in refused, "F16" in refused), (1, True, True, True),
           f"one line that names file, tensor and type: {refused}")
    print(refused, end="")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(program, "write", folder)
        check_events(folder)
        check_log(folder)
        check_written_tensors(folder)
        check_read_tensors(program, folder)


if __name__ == "__main__":
    from_pypi.enter("readers", PACKAGES)
    late.end(main)
