# SPDX-License-Identifier: Apache-2.0
"""What train_fashion_mnist must show: it learns, and the ranks change nothing but rounding."""

import json
import pathlib
import tempfile

from programs import TRAIN, expect, expect_refused, late, result, unpacked

# What the last line of a training says.
RESULT_KEYS = ("ranks epochs train_loss test_accuracy seconds images_per_second param_hash batches tensors_per_batch "
               "control_bytes_per_step compute_share wait_share transfer_share share_before_wait straggler steps "
               "first_gradient_ms update_ms")


def train(programs, ranks, **flags):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    done = programs.run(TRAIN, *flags, ranks=ranks)
    values = result(done)
    expect(list(values) == RESULT_KEYS.split(), done, "the last line has other keys")
    expect(values["ranks"] == str(ranks), done, f"expected {ranks} ranks")
    compute, wait, transfer = (float(values[f"{what}_share"]) for what in ("compute", "wait", "transfer"))
    # Three decimals: on a busy machine computing may be all that one rank does.
    expect(abs(compute + wait - 1) < 0.002 and 0 < compute <= 1, done, "computing and waiting are all there is")
    expect(0 <= transfer < 1 and (ranks == 1 or transfer > 0), done, "a part of the time a transfer is under way")
    first, update = (float(values[f"{what}_ms"]) for what in ("first_gradient", "update"))
    step = 1e3 * float(values["seconds"]) / int(values["steps"])
    expect(first > 0 and update > 0 and first + update < step, done, "these are parts of a step")
    return values


def unscored(programs):
    """The flags of a training of which no score is read: the test of a CNN takes longer than its few steps."""
    return {"data": unpacked(programs.folder), "test_images": 100}


def check_accuracy(programs):
    values = train(programs, 2)
    print(values)
    assert int(values["epochs"]) <= 10, "the claim is about 10 epochs"
    assert float(values["test_accuracy"]) >= 0.87, f"accuracy {values['test_accuracy']} below 0.87"
    late.at_most(float(values["seconds"]), 300, "the training")


def check_same_loss(programs, batch):
    """The number of ranks changes the loss of an epoch by rounding only."""
    losses = []
    for ranks in (1, 2, 3, 4):
        values = train(programs, ranks, epochs=1, global_batch=batch, learning_rate=0.01, momentum=0, seed=1,
                       **unscored(programs))
        losses.append(float(values["train_loss"]))
    spread = (max(losses) - min(losses)) / min(losses)
    print(f"global batch {batch}: losses {losses}, relative spread {spread:.1e}")
    assert spread <= 1e-5, f"global batch {batch}: losses {losses} differ by {spread:.1e}"


EXACT = [(model, optimizer, batch, ranks) for model in ("mlp", "cnn") for optimizer in ("sgd", "adam")
         for batch in (120, 131) for ranks in (2, 3, 4)]


def check_exact(programs, cases=(("mlp", "sgd", 131, 3), ("mlp", "adam", 120, 2),
                                 ("cnn", "sgd", 131, 2), ("cnn", "adam", 131, 3))):
    """p ranks of one host end with the bits of one rank that accumulates p micro-batches."""
    for model, optimizer, batch, ranks in cases:
        # 60,000 samples: the last step of the MLP's epoch is a shorter one.
        steps = 0 if model == "mlp" else 4
        flags = {"model": model, "optimizer": optimizer, "global_batch": batch, "epochs": 1, "clip": 0.7,
                 "steps": steps, **unscored(programs)}
        alone = train(programs, 1, accumulate=ranks, **flags)
        many = train(programs, ranks, **flags)
        print(f"{model} {optimizer} {batch} x {ranks}: {many['param_hash']}")
        assert many["param_hash"] == alone["param_hash"], f"{flags}, {ranks} ranks: {many} against {alone}"


def step_losses(programs, ranks, **flags):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    done = programs.run(TRAIN, "--log-every=1", *flags, ranks=ranks)
    result(done)
    losses = [float(line.split()[3].rstrip(",")) for line in done.stdout.splitlines() if line.startswith("step ")]
    expect(len(losses) == 20, done, "expected the losses of 20 steps")
    return losses


def check_close(programs):
    """The loss of each of the first 20 steps depends on how a batch is cut by rounding only.

    Rates are small: a rounding that moves one number over the kink of a ReLU or to another place of a max-pool
    grows from step to step, and the faster the larger the steps are.
    """
    for optimizer, norm, rate, bound in (("sgd", "off", 0.001, 1e-5), ("adam", "off", 0.001, 1e-4),
                                         ("sgd", "sync", 0.0005, 1e-4)):
        flags = {"model": "cnn", "steps": 20, "epochs": 1, "global_batch": 64, "optimizer": optimizer,
                 "batch_norm": norm, "learning_rate": rate, **unscored(programs)}
        alone = step_losses(programs, 1, **flags)
        for ranks, parts in ((3, 1),) if norm == "off" else ((2, 1),):
            many = step_losses(programs, ranks, accumulate=parts, **flags)
            spread = max(abs(a - b) / a for a, b in zip(alone, many))
            print(f"{optimizer}, batch norm {norm}, {ranks} ranks x {parts}: {spread:.1e}")
            assert spread <= bound, f"{optimizer} {norm} {ranks} x {parts}: {spread:.1e} above {bound}: {alone} {many}"


def check_cnn(programs):
    """A minute of the CNN: two ranks, every switch at once, learn something."""
    values = train(programs, 2, model="cnn", steps=60, epochs=1, batch_norm="sync", gradients="board", wire="bf16",
                   optimizer="adamw", schedule="cosine", warmup=5, clip=5, accumulate=2, global_batch=64,
                   test_images=2000)
    print(values)
    assert float(values["test_accuracy"]) > 0.6, f"it learns nothing: {values}"
    plain = train(programs, 2, model="cnn", steps=4, epochs=1, **unscored(programs))
    board = train(programs, 2, model="cnn", steps=4, epochs=1, gradients="board", **unscored(programs))
    assert plain["param_hash"] == board["param_hash"], "gradients on the board change the result"
    assert float(board["share_before_wait"]) > 0, f"no gradient was summed during backward: {board}"


def check_cnn_accuracy(programs):
    """The claim of the README: three epochs, the median of three seeds."""
    values = [train(programs, 2, model="cnn", epochs=3, seed=seed) for seed in (1, 2, 3)]
    accuracies = sorted(float(one["test_accuracy"]) for one in values)
    print(accuracies)
    assert accuracies[1] >= 0.905, f"accuracies {accuracies}"


def check_bad_training(programs):
    """What is wrong with a training is one line, on one rank and on two."""
    for ranks in (1, 2):
        done = programs.run(TRAIN, "--global-batch=5", "--accumulate=6", ranks=ranks, seconds=60)
        lines = expect_refused(done, "--global-batch 5 is less than", f"use at least {6 * ranks}")
        expect(len(lines) == 1, done, "expected one line for all ranks")
        done = programs.run(TRAIN, "--learning-rate=100", "--epochs=1", "--momentum=0", ranks=ranks, seconds=60)
        lines = expect_refused(done, "of epoch 1: rank 0: the loss is not a finite number", "linear with fc",
                               "smaller learning rate")
        expect(len(lines) == 1, done, "expected one line for all ranks")
        done = programs.run(TRAIN, "--batch-norm=sync", ranks=ranks, seconds=60)
        expect(len(expect_refused(done, "--batch-norm sync is for the CNN")) == 1, done, "lines")
        done = programs.run(TRAIN, "--epochs=1", "--steps=2", "--plot=/proc/nonexistent/loss.svg", ranks=ranks, seconds=60)
        expect(len(expect_refused(done, "--plot /proc/nonexistent/loss.svg", "cannot be written")) == 1, done, "lines")
    with tempfile.TemporaryDirectory() as folder:
        picture = pathlib.Path(folder) / "loss.svg"
        result(programs.run(TRAIN, "--epochs=2", f"--plot={picture}", ranks=2))
        text = picture.read_text(encoding="utf-8")
        assert text.startswith("<svg") and text.count("<circle") == 2, text


def check_restart(programs):
    """A restart with other threads says so; the learning rate has three levels, whatever the number of steps."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--global-batch=12000", "--epochs=1", "--schedule=step", "--learning-rate=0.1", "--log-every=1",
                 "--test-images=500", f"--logdir={folder}"]
        first = programs.run(TRAIN, "--steps=2", *flags, seconds=60)
        result(first)
        rest = programs.run(TRAIN, "--threads=2", *flags, seconds=60)
        result(rest)
        line = "each rank computes with --threads 2 from here on, and did with 1: results agree to rounding"
        expect(line in rest.stdout and "--threads" not in first.stdout, rest, f"expected: {line}")
        lines = (pathlib.Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rates = [values["train/learning_rate"] for values in map(json.loads, lines) if "train/learning_rate" in values]
        expected = [0.1, 0.1, 0.01, 0.01, 0.001]
        assert len(rates) == 5 and all(abs(a - b) < 1e-9 for a, b in zip(rates, expected)), f"rates {rates}"


def check_submission_order(programs):
    """Ranks that submit in different orders train to the same parameters, and batching works."""
    usual = train(programs, 2, epochs=1, **unscored(programs))
    for seed in (1, 2):
        shuffled = train(programs, 2, epochs=1, shuffle_submission=seed, **unscored(programs))
        print(shuffled)
        assert shuffled["param_hash"] == usual["param_hash"], f"{shuffled} against {usual}"
        assert float(shuffled["tensors_per_batch"]) > 1.0, f"as many batches as tensors: {shuffled}"
