#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end checks of the example programs, as a user starts them: alone and with mpirun.

    examples.py CHECK BIN_FOLDER [MPIRUN]

runs one check (see CHECKS) against the programs in BIN_FOLDER. Exit code 0: it holds.
"""

import gzip
import pathlib
import shutil
import sys
import tempfile

import trainings
from programs import DATA, ERROR_SECONDS, TRAIN, Programs, expect, expect_refused, late, result


def check_linear_regression(programs):
    for ranks in (1, 2, 3, 4):
        done = programs.run("linear_regression", ranks=ranks)
        values = result(done)
        keys = trainings.RESULT_KEYS.replace("test_accuracy", "test_loss weight bias")
        expect(list(values) == keys.split(), done, "other keys")
        expect(values["ranks"] == str(ranks), done, f"expected {ranks} ranks")
        expect(abs(float(values["weight"]) - 2) < 0.05, done, "the weight is not 2")
        expect(abs(float(values["bias"]) - 10) < 0.05, done, "the bias is not 10")
        expect(done.stdout.count("step ") >= 5, done, "no weight and bias on the way")
    # Every so many steps a line with the loss of all ranks.
    done = programs.run("linear_regression", "--steps=20", "--steps-to-validate=8", "--learning-rate=0.2", ranks=2)
    lines = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    expect([line.split(":")[0] for line in lines] == ["step 8", "step 16"], done, "other steps")
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in lines]
    expect(losses[0] > losses[1] > 0, done, "the loss does not fall")
    # A rank that stands still half of the time is named at the end.
    name = programs.path("linear_regression")
    stutter = ('"$@" & it=$!; while grep -q "^State:.[^Z]" /proc/$it/status; do kill -STOP $it; sleep 0.02; '
               "kill -CONT $it; sleep 0.02; done; wait $it")
    done = programs.run_parts(2, [[name, "--steps=20000"], ["sh", "-c", stutter, "sh", name, "--steps=20000"]])
    result(done)
    expect("\nlate: the others waited for rank 1 in " in done.stdout, done, "nobody is named")
    # A line with a value that is not finite is no result.
    for ranks in (1, 2):
        done = programs.run("linear_regression", "--learning-rate=1", "--momentum=0.99",
                            "--batch=1", "--steps=5000", ranks=ranks, seconds=60)
        lines = expect_refused(done, " finite", "smaller learning rate",
                               ours="linear_regression: ")
        expect(len(lines) == 1, done, "expected one line for all ranks")
        expect("weight=" not in done.stdout, done, "it prints a result all the same")


def check_custom_loop(programs):
    """The loop by hand trains a model of its own, alike for every number of ranks; with two of them as on servers."""
    losses, hashes = [], []
    for ranks in (1, 2, 3):
        done = programs.run("custom_loop", "--epochs=1", ranks=ranks)
        values = result(done)
        expect(values["ranks"] == str(ranks), done, f"expected {ranks} ranks")
        expect(float(values["accuracy"]) > 0.75, done, "it learns nothing")
        losses.append(float(values["loss"]))
        hashes.append(values["param_hash"])
    if "--servers" in programs.run("custom_loop", "--help").stdout:  # it is linked where ZeroMQ is there
        done = programs.run("custom_loop", "--epochs=1", "--servers=1", "--mode=sync", ranks=3)
        expect(f" param_hash={hashes[1]}\n" in done.stdout, done, "two workers of a server have not the bits of two ranks")
    assert max(losses) - min(losses) <= 2e-3 * min(losses), f"losses {losses}"
    for text in ("abc", "-1", "0", "1x", "1" + "0" * 23):
        done = programs.run("custom_loop", "--epochs", text)
        expect(done.returncode == 2, done, f"it takes {text}")
        expect_refused(done, f"--epochs {text} is not valid", "a whole number from 1", ours="custom_loop: ")


def check_classify_two_classes(programs):
    """The epochs of one rank are divided over several; the learning rate is multiplied."""
    name = "classify_two_classes"
    keys = trainings.RESULT_KEYS.replace("epochs", "classes epochs")
    for ranks, epochs, rate in ((1, 3, "0.0005 x 1 = 0.0005"), (2, 2, "0.0005 x 2 = 0.001")):
        done = programs.run(name, "--epochs=3", "--steps=60", "--batch=32", "--classes=t-shirt,trouser", ranks=ranks)
        values = result(done)
        expect(list(values) == keys.split(), done, "the last line has other keys")
        expect(values["ranks"] == str(ranks) and values["classes"] == "0,1", done, "ranks or classes")
        expect(values["epochs"] == str(epochs) and values["steps"] == "60", done, f"expected {epochs} epochs")
        expect(rate in done.stdout, done, "the learning rate is not told")
        expect(float(values["test_accuracy"]) > 0.93, done, "trousers look like T-shirts")
    cases = [(["--classes", "0"], "two different ones"), (["--classes", "3,3"], "two different ones"),
             (["--classes", "0,10"], "one of: t-shirt"), (["--classes", "coat,hat"], "coat,hat is not valid"),
             (["--dropout", "1"], "from 0 to below 1"), (["--epochs", "0"], "from 1 to"),
             (["--batch", "0"], "from 1 to"), (["--learning-rate", "0"], "above 0")]
    for flags, valid in cases:
        done = programs.run(name, "--data=/proc/nonexistent", *flags, seconds=60)
        expect(len(expect_refused(done, flags[0], valid, ours=name + ": ")) == 1, done, "expected one line")
    for ranks in (1, 2):
        done = programs.run(name, "--data=/proc/nonexistent", ranks=ranks, seconds=60)
        lines = expect_refused(done, "/proc/nonexistent does not exist", ours=name + ": ")
        expect(len(lines) == 1, done, "expected one line for all ranks")


def check_help(programs):
    for name in (TRAIN, "linear_regression", "classify_two_classes"):
        done = programs.run(name, "--help", seconds=ERROR_SECONDS)
        expect(done.returncode == 0, done, "--help failed")
        expect("--seed VALUE (=1)" in done.stdout, done, "--help shows no default")
        expect(done.stderr == "", done, "--help complains")
        done = programs.run(name, "--version", seconds=ERROR_SECONDS)
        expect(done.returncode == 0 and done.stdout.startswith(f"{name} (Ronde "), done, "--version says no version")


def check_readme_snippet(programs):
    for ranks, mean in ((1, 0.0), (2, 0.5), (3, 1.0)):
        done = programs.run("readme_snippet", ranks=ranks)
        expect(done.returncode == 0, done, "the snippet failed")
        # 100 steps of -0.01 times the mean of the ranks' numbers, and of 1.
        expect(f"weight {-mean:.3f}, bias -1.000" in done.stdout.replace("-0.000", "0.000")
               or (mean == 0.0 and "weight 0.000, bias -1.000" in done.stdout),
               done, "other parameters than expected")


def check_c_average(programs):
    """the example in C, with the average of rank * 999."""
    for ranks in (1, 2, 3):
        done = programs.run("c_average", ranks=ranks)
        expect(done.returncode == 0, done, "the example failed")
        expect(result(done) == {"ranks": str(ranks), "last": f"{999 * (ranks - 1) / 2:.1f}"}, done,
               "another average")


def check_flags(programs):
    """Bad values are refused before anything is read; rank 0 prints the error for all."""
    whole, positive = "use a whole number from 1 to", "use a number above 0"
    cases = [
        (["--epochs", "0"], whole), (["--epochs", "-1"], whole), (["--epochs", "nan"], whole),
        (["--epochs", "1000000000"], whole), (["--epochs", "3x"], whole),
        (["--global-batch", "0"], whole), (["--global-batch", "-128"], whole),
        (["--global-batch", "NaN"], whole), (["--global-batch", "99999999999999999999"], whole),
        (["--learning-rate", "0"], positive), (["--learning-rate", "-0.1"], positive),
        (["--learning-rate", "nan"], positive), (["--learning-rate", "inf"], positive),
        (["--learning-rate", "1e9"], positive), (["--momentum", "1"], "from 0 to below 1"),
        (["--momentum", "-0.5"], "from 0 to below 1"), (["--threads", "0"], whole),
        (["--seed", "-1"], "use a whole number from 0"),
        (["--model", "transformer"], "use one of: mlp cnn"),
        (["--optimizer", "rmsprop"], "use one of: sgd adam adamw"), (["--wire", "f64"], "use one of: f32 f16 bf16"),
        (["--schedule", "never"], "use one of: auto constant"), (["--accumulate", "0"], whole),
        (["--clip", "-1"], "0 or a number above it"), (["--weight-decay", "2"], "a number from 0 to 1"),
        (["--no-such-flag", "1"], "--help"),
        (["positional"], "--help"), (["--epochs"], "--help"),
    ]
    on_two_ranks = {"--epochs", "--no-such-flag", "--model"}
    for flags, valid in cases:
        parts = [flags[0], valid] if flags[0] != "positional" else [valid]
        parts += flags[1:] if "use" in valid else []
        done = programs.run(TRAIN, "--data=/proc/nonexistent", *flags, seconds=60)
        expect(len(expect_refused(done, *parts)) == 1, done, "expected one line")
        expect(done.returncode == 2, done, "expected exit code 2")
        if flags[0] in on_two_ranks:
            on_two_ranks.remove(flags[0])
            done = programs.run(TRAIN, "--data=/proc/nonexistent", *flags, ranks=2, seconds=60)
            expect(len(expect_refused(done, *parts)) == 1, done, "expected one line for all ranks")
    done = programs.run("linear_regression", "--batch", "0", seconds=60)
    expect_refused(done, "--batch 0", whole, ours="linear_regression: ")
    # An error that only one rank has is printed too.
    done = programs.run_parts(2, [[programs.path(TRAIN)], [programs.path(TRAIN), "--epochs", "0"]],
                              seconds=60)
    lines = expect_refused(done)
    expect(any("rank 1: --epochs 0" in line for line in lines), done, "rank 1 is silent")


def damaged_data(folder, damage):
    """A copy of the data set (links, mostly) after `damage`."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
    for file in DATA.iterdir():
        (folder / file.name).symlink_to(file)
    damage(folder)
    return folder


def replace(folder, name, content):
    (folder / name).unlink()
    (folder / name).write_bytes(content)


def swap(folder, one, other):
    for name, source in ((one, other), (other, one)):
        (folder / name).unlink()
        (folder / name).symlink_to(DATA / source)


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def truncate(folder):
    replace(folder, IMAGES, (DATA / IMAGES).read_bytes()[:1_000_000])


def corrupt(folder):
    content = bytearray((DATA / IMAGES).read_bytes())
    content[1_000_000:1_000_064] = bytes(64)
    replace(folder, IMAGES, bytes(content))


def wrong_label(folder):
    content = bytearray(gzip.decompress((DATA / LABELS).read_bytes()))
    content[8 + 1234] = 10
    replace(folder, LABELS, gzip.compress(bytes(content)))


def swap_parts(folder):
    """Each part is whole, but has the name of the other."""
    for one, other in ((IMAGES, "t10k-images-idx3-ubyte.gz"), (LABELS, "t10k-labels-idx1-ubyte.gz")):
        swap(folder, one, other)


def check_data(programs):
    """Bad data: every rank fails, one of them prints the reason."""
    temporary = tempfile.mkdtemp()
    try:
        cases = [
            (truncate, [IMAGES, "byte ", "truncated, replace it"]),
            (corrupt, [IMAGES, "byte ", "corrupt", "replace the file"]),
            (lambda folder: swap(folder, IMAGES, LABELS), [IMAGES, "byte 0", "swapped"]),
            (lambda folder: swap(folder, LABELS, "t10k-labels-idx1-ubyte.gz"),
             [LABELS, "10000 labels, expected 60000"]),
            (swap_parts, ["the train files have 10000 images and the t10k files 60000",
                          "have they changed places?"]),
            (wrong_label, [LABELS, "byte 1242: label 10, expected 0 to 9"]),
            (lambda folder: (folder / LABELS).unlink(), ["has no file", LABELS]),
        ]
        starts = [(damaged_data(temporary, damage), parts) for damage, parts in cases]
        starts.append((pathlib.Path(temporary) / "none", ["does not exist", "dataset-fashion-mnist"]))
        plain_file = pathlib.Path(temporary) / "file"
        plain_file.write_bytes(b"")
        starts.append((plain_file, ["is no directory", "dataset-fashion-mnist"]))
        for folder, parts in starts:
            for ranks in (1, 2):
                done = programs.run(TRAIN, f"--data={folder}", ranks=ranks, seconds=60)
                lines = expect_refused(done, str(folder), *parts)
                expect(len(lines) == 1, done, "expected one line for all ranks")
        done = programs.run(TRAIN, "--global-batch=60001", ranks=2, seconds=60)
        expect(len(expect_refused(done, "--global-batch 60001", "at most 60000")) == 1, done, "lines")
    finally:
        shutil.rmtree(temporary)


def check_ranks_differ(programs):
    """Ranks started with different flags, and bad settings of Ronde."""
    command = [programs.path(TRAIN), "--seed=1"]
    done = programs.run_parts(2, [command + ["--epochs=2"], command + ["--epochs=3"]], seconds=60)
    lines = expect_refused(done, "--epochs is 2 on rank 0 and 3 on rank 1", "same flags")
    expect(len(lines) == 2, done, "expected one line per rank")
    for ranks in (1, 2):
        done = programs.run(TRAIN, ranks=ranks, seconds=60, environment={"RONDE_BATCH_BYTES": "many"})
        expect_refused(done, "RONDE_BATCH_BYTES", "many", "use a whole number")
    done = programs.run(TRAIN, "--learning-rate=100", "--epochs=1", ranks=2, seconds=120)
    expect_refused(done, "loss", "not a finite number", "smaller learning rate")


def check_device(programs):
    """Without a GPU, or without CUDA in the build, --device cuda is refused in one line."""
    done = programs.run(TRAIN, "--device=tpu", seconds=60)
    expect_refused(done, "--device tpu", "cpu cuda")
    done = programs.run(TRAIN, "--device=cuda", "--shuffle-submission=1", seconds=60)
    expect_refused(done, "--shuffle-submission", "--device cuda")
    # An empty list of devices hides a GPU where there is one.
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    for ranks in (1, 2):
        done = programs.run(TRAIN, "--device=cuda", "--epochs=1", ranks=ranks, seconds=60, environment=hidden)
        lines = expect_refused(done, "--device cuda: ", "or use --device cpu")
        expect("this build has no CUDA" in lines[0] or "there is no CUDA device" in lines[0], done, "why not")
        expect(len(lines) == 1, done, "one line, of rank 0")


CHECKS = {
    "accuracy": trainings.check_accuracy,
    "same_loss_120": lambda programs: trainings.check_same_loss(programs, 120),
    "same_loss_125": lambda programs: trainings.check_same_loss(programs, 125),
    "exact": trainings.check_exact,
    "exact_all": lambda programs: trainings.check_exact(programs, trainings.EXACT),
    "close": trainings.check_close,
    "cnn": trainings.check_cnn,
    "cnn_accuracy": trainings.check_cnn_accuracy,
    "bad_training": trainings.check_bad_training,
    "restart": trainings.check_restart,
    "submission_order": trainings.check_submission_order,
    "linear_regression": check_linear_regression,
    "custom_loop": check_custom_loop,
    "classify_two_classes": check_classify_two_classes,
    "help": check_help,
    "readme_snippet": check_readme_snippet,
    "c_average": check_c_average,
    "flags": check_flags,
    "data": check_data,
    "ranks_differ": check_ranks_differ,
    "device": check_device,
}


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in CHECKS:
        sys.exit(f"usage: examples.py {'|'.join(CHECKS)} BIN_FOLDER [MPIRUN]")
    programs = Programs(sys.argv[2], sys.argv[3] if len(sys.argv) == 4 else "mpirun")
    try:
        CHECKS[sys.argv[1]](programs)
    except AssertionError as error:
        sys.exit(f"{sys.argv[1]}: {error}")


if __name__ == "__main__":
    late.end(main)
