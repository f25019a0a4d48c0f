#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""End-to-end checks of the example programs, as a user starts them: alone and with mpirun.

    examples.py CHECK BIN_FOLDER [MPIRUN]

runs one check (see CHECKS) against the programs in BIN_FOLDER. Exit code 0: it holds.
"""

import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
TRAIN = "train_fashion_mnist"
# A bad start must be reported "within seconds". Generous for a loaded machine, far below a deadline.
ERROR_SECONDS = 20
RUN_SECONDS = 280


class Programs:
    """Starts the programs."""

    def __init__(self, folder, mpirun):
        self.folder = pathlib.Path(folder)
        self.mpirun = mpirun

    def path(self, name):
        return str(self.folder / name)

    def run(self, name, *flags, ranks=1, seconds=RUN_SECONDS, environment=None):
        """One program on `ranks` ranks; 1: without mpirun."""
        if ranks == 1:
            return self.start([self.path(name), *flags], seconds, environment)
        return self.run_parts(ranks, [[self.path(name), *flags]], seconds, environment)

    def run_parts(self, ranks, commands, seconds=RUN_SECONDS, environment=None):
        """One mpirun whose ranks are spread evenly over several command lines."""
        line = [self.mpirun, "--bind-to", "none", "--oversubscribe"]
        for i, command in enumerate(commands):
            line += ([":"] if i else []) + ["-np", str(ranks // len(commands)), *command]
        return self.start(line, seconds, environment)

    @staticmethod
    def start(line, seconds, environment):
        settings = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        settings.update(environment or {})
        began = time.monotonic()
        try:
            done = subprocess.run(line, capture_output=True, text=True, errors="replace",
                                  timeout=seconds, env=settings, stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"no end after {seconds} s: {' '.join(line)}\n"
                                 f"{error.stdout}\n{error.stderr}") from None
        done.seconds = time.monotonic() - began
        return done


def expect(condition, done, what):
    """Fails with everything that the program said."""
    if not condition:
        raise AssertionError(f"{what}\ncommand: {' '.join(done.args)}\nexit code: {done.returncode}\n"
                             f"--- stdout\n{done.stdout}--- stderr\n{done.stderr}")


def result(done):
    """The key=value pairs of the last line."""
    expect(done.returncode == 0, done, "the program failed")
    return dict(pair.split("=", 1) for pair in done.stdout.splitlines()[-1].split())


def train(programs, ranks, **flags):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    done = programs.run(TRAIN, *flags, ranks=ranks)
    values = result(done)
    keys = ("ranks epochs train_loss test_accuracy seconds images_per_second param_hash batches "
            "tensors_per_batch control_bytes_per_step compute_share wait_share transfer_share")
    expect(list(values) == keys.split(), done, "the last line has other keys")
    expect(values["ranks"] == str(ranks), done, f"expected {ranks} ranks")
    compute, wait, transfer = (float(values[f"{what}_share"]) for what in ("compute", "wait", "transfer"))
    expect(abs(compute + wait - 1) < 0.002 and 0 < compute < 1, done, "computing and waiting are all there is")
    expect(0 < transfer < 1, done, "a part of the time a transfer is under way")
    return values


def check_accuracy(programs):
    values = train(programs, 2)
    print(values)
    assert int(values["epochs"]) <= 10, "the claim is about 10 epochs"
    assert float(values["test_accuracy"]) >= 0.87, f"accuracy {values['test_accuracy']} below 0.87"
    assert float(values["seconds"]) < 300, f"{values['seconds']} s of training"


def check_same_loss(programs, batch):
    """The number of ranks changes the loss of an epoch by rounding only."""
    losses = []
    for ranks in (1, 2, 3, 4):
        values = train(programs, ranks, epochs=1, global_batch=batch, learning_rate=0.01,
                       momentum=0, seed=1)
        losses.append(float(values["train_loss"]))
    spread = (max(losses) - min(losses)) / min(losses)
    print(f"global batch {batch}: losses {losses}, relative spread {spread:.1e}")
    assert spread <= 1e-5, f"global batch {batch}: losses {losses} differ by {spread:.1e}"


def check_submission_order(programs):
    """Ranks that submit in different orders train to the same parameters, and batching works."""
    usual = train(programs, 2, epochs=1)
    for seed in (1, 2):
        shuffled = train(programs, 2, epochs=1, shuffle_submission=seed)
        print(shuffled)
        assert shuffled["param_hash"] == usual["param_hash"], f"{shuffled} against {usual}"
        assert float(shuffled["tensors_per_batch"]) > 1.0, f"as many batches as tensors: {shuffled}"


def check_linear_regression(programs):
    for ranks in (1, 2, 3, 4):
        done = programs.run("linear_regression", ranks=ranks)
        values = result(done)
        expect(list(values) == "ranks weight bias seconds param_hash".split(), done, "other keys")
        expect(values["ranks"] == str(ranks), done, f"expected {ranks} ranks")
        expect(abs(float(values["weight"]) - 2) < 0.05, done, "the weight is not 2")
        expect(abs(float(values["bias"]) - 10) < 0.05, done, "the bias is not 10")
        expect(done.stdout.count("step ") >= 5, done, "no weight and bias on the way")
    # A line with a value that is not finite is no result.
    for ranks in (1, 2):
        done = programs.run("linear_regression", "--learning-rate=1", "--momentum=0.99",
                            "--batch=1", "--steps=5000", ranks=ranks, seconds=60)
        lines = expect_refused(done, "the line is not finite any more", "smaller learning rate",
                               ours="linear_regression: ")
        expect(len(lines) == 1, done, "expected one line for all ranks")
        expect("weight=" not in done.stdout, done, "it prints a result all the same")


def check_help(programs):
    for name in (TRAIN, "linear_regression"):
        done = programs.run(name, "--help", seconds=ERROR_SECONDS)
        expect(done.returncode == 0, done, "--help failed")
        expect("--seed VALUE (=1)" in done.stdout, done, "--help shows no default")
        expect(done.stderr == "", done, "--help complains")
        done = programs.run(name, "--version", seconds=ERROR_SECONDS)  # O19
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
    """O7: the example in C, with the average of rank * 999."""
    for ranks in (1, 2, 3):
        done = programs.run("c_average", ranks=ranks)
        expect(done.returncode == 0, done, "the example failed")
        expect(result(done) == {"ranks": str(ranks), "last": f"{999 * (ranks - 1) / 2:.1f}"}, done,
               "another average")


def expect_refused(done, *parts, ours=TRAIN + ": "):
    """A short message of ours with all the parts in one line, soon, and a non-zero exit code."""
    expect(done.returncode not in (0, 124, 134, 139), done, "expected an orderly failure")
    expect(done.seconds < ERROR_SECONDS, done, f"the failure took {done.seconds:.1f} s")
    # mpirun adds lines of its own.
    lines = [line for line in done.stderr.splitlines() if line.startswith(ours)]
    expect(lines, done, "no message")
    for line in lines:
        expect(all(part in line for part in parts), done, f"expected {parts} in: {line}")
        expect(len(line) < 400, done, "the message is long")
    return lines


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
        (["--seed", "-1"], "use a whole number from 0"), (["--model", "transformer"], "use mlp"),
        (["--optimizer", "adam"], "use sgd"), (["--no-such-flag", "1"], "--help"),
        (["positional"], "--help"), (["--epochs"], "--help"),
    ]
    on_two_ranks = {"--epochs", "--no-such-flag", "--model"}
    for flags, valid in cases:
        parts = [flags[0], valid] if flags[0] != "positional" else [valid]
        parts += flags[1:] if "use" in valid else []
        done = programs.run(TRAIN, "--data=/nonexistent", *flags, seconds=60)
        expect(len(expect_refused(done, *parts)) == 1, done, "expected one line")
        expect(done.returncode == 2, done, "expected exit code 2")
        if flags[0] in on_two_ranks:
            on_two_ranks.remove(flags[0])
            done = programs.run(TRAIN, "--data=/nonexistent", *flags, ranks=2, seconds=60)
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
    "accuracy": check_accuracy,
    "same_loss_120": lambda programs: check_same_loss(programs, 120),
    "same_loss_125": lambda programs: check_same_loss(programs, 125),
    "submission_order": check_submission_order,
    "linear_regression": check_linear_regression,
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
    main()
