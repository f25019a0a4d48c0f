#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the chief does for a training: whatever ends it, it goes on to the very same parameters.

usage: chief.py CHECK FOLDER_OF_PROGRAMS MPIRUN RONDERUN
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "fault"))

import job as jobs  # pylint: disable=wrong-import-position
from programs import TRAIN, Programs, expect, expect_refused, result  # pylint: disable=wrong-import-position

SKIPPED = 77
STEPS = 1000


def mlp(steps=STEPS):
    """An epoch has 469 steps."""
    return ["--optimizer=adam", f"--epochs={steps // 469 + 1}", f"--steps={steps}", "--test-images=500"]


def cnn(steps):
    return ["--model=cnn", "--batch-norm=local", "--optimizer=adam", "--epochs=1", f"--steps={steps}",
            "--test-images=500"]


class Chief(Programs):
    def __init__(self, folder, mpirun, ronderun):
        super().__init__(folder, mpirun)
        self.ronderun = ronderun
        self.home = self.logdir = tempfile.mkdtemp(prefix="ronde_chief_")

    def fresh(self):
        """A logdir of its own for another case."""
        self.logdir = tempfile.mkdtemp(dir=self.home)
        return f"--logdir={self.logdir}"

    def saved(self):
        """The steps of which there are checkpoints."""
        names = [path.name[len("step-"):] for path in pathlib.Path(self.logdir).glob("step-*")]
        return sorted(int(name) for name in names if name.isdigit())

    def begin(self, flags, ranks=2, starter=None):
        """A training that goes on beside this test, and says each of its steps."""
        starts = [starter or self.mpirun, *([] if starter else ["--bind-to", "none", "--oversubscribe"])]
        line = [*starts, "-np", str(ranks), self.path(TRAIN), *flags, "--log-every=1"]
        return Running(line)


class Running(jobs.Job):
    """A training, however it was started."""

    def __init__(self, line):  # pylint: disable=super-init-not-called
        self.begin(line)

    def steps(self):
        """The steps that were said."""
        return [int(line.split()[1].rstrip(":")) for line in self.output().splitlines()
                if line.startswith("step ") and line.endswith(tuple("0123456789"))]

    def wait_for_step(self, step):
        self.wait_until(lambda: (self.steps() or [0])[-1] >= step, 120, f"step {step}")

    def signal_rank(self, rank, number):
        os.kill(self.wait_until(lambda: self.find_rank(rank, TRAIN), 10, f"rank {rank}"), number)

    def resumed_at(self):
        return resumed_at(self.output())


def resumed_at(text):
    """The step at which a training went on, 0: it began anew."""
    for line in text.splitlines():
        if line.startswith("resumed at step "):
            return int(line.split()[3])
    return 0


def final(chief, flags, ranks=2, seconds=280):
    done = chief.run(TRAIN, *flags, ranks=ranks, seconds=seconds)
    expect(done.returncode == 0, done, "the program failed")
    line = [line for line in done.stdout.splitlines() if "param_hash=" in line][-1]
    return done, dict(pair.split("=", 1) for pair in line.split())


def killed(chief, flags, steps, interval, kills, seed):
    """Kills a random rank at random steps, and starts the training again each time."""
    undisturbed = final(chief, flags)[1]
    flags = [*flags, chief.fresh(), "--save-seconds=0", f"--save-steps={interval}"]
    draw = random.Random(seed)
    last = newest = 0
    for number in range(kills):
        running = chief.begin(flags)
        if number > 0:
            running.wait_until(lambda: running.resumed_at(), 60, "the line that says where it goes on")
            at = running.resumed_at()
            print(f"killed after step {last} was said, resumed at step {at}")
            assert at == newest, f"resumed at {at}, and the newest whole checkpoint is of step {newest}"
            # One interval is lost, and what was done while a checkpoint was written: on a busy machine that takes long.
            assert last - 10 * interval < at, f"resumed at {at} after step {last}"
        # Far enough for a checkpoint, and before the end.
        begin = running.resumed_at()
        step = begin + interval + 1 + draw.randrange(max(1, (steps - begin - interval) // (kills - number + 1)))
        running.wait_for_step(min(step, steps - 1))
        running.wait_until(chief.saved, 60, "a checkpoint")
        running.signal_rank(draw.randrange(2), signal.SIGKILL)
        running.end(60, "a rank is dead")
        last, newest = running.steps()[-1], chief.saved()[-1]
        assert running.process.returncode != 0
        assert all(saved % interval == 0 or saved % 469 == 0 for saved in chief.saved()), \
            f"saved after the failure: {chief.saved()}"
    done, values = final(chief, flags)
    at = resumed_at(done.stdout)
    expect(at > 0, done, "it began anew")
    expect(int(values["steps"]) == steps - at, done, f"{steps} - {at} steps were left")
    expect(values["param_hash"] == undisturbed["param_hash"], done, f"expected {undisturbed}")
    print(f"{kills} kills: {values['param_hash']}, as undisturbed")


def check_killed(chief):
    killed(chief, mlp(), STEPS, 50, 3, seed=1)
    killed(chief, cnn(40), 40, 5, 2, seed=2)


def check_killed_ten_times(chief):
    killed(chief, mlp(4000), 4000, 50, 10, seed=3)
    killed(chief, cnn(150), 150, 5, 10, seed=4)


def check_restarts(chief):
    """The same with ronderun: a rank that dies is started again with all others."""
    undisturbed = final(chief, mlp())[1]
    flags = [*mlp(), chief.fresh(), "--save-seconds=0", "--save-steps=25"]
    running = Running([chief.ronderun, "--restarts", "2", "-np", "2", chief.path(TRAIN), *flags, "--log-every=1"])
    running.wait_for_step(120)
    running.signal_rank(1, signal.SIGKILL)
    output = running.end(120, "it is started again")
    values = dict(pair.split("=", 1) for line in output.splitlines() if "param_hash=" in line
                  for pair in line[line.index("ranks="):].split())
    if running.process.returncode != 0 or values.get("param_hash") != undisturbed["param_hash"]:
        sys.exit(f"{output}\nexit code {running.process.returncode}, expected {undisturbed['param_hash']}")
    at = running.resumed_at()
    if at == 0 or int(values["steps"]) != STEPS - at:
        sys.exit(f"{output}\nresumed at {at}: expected {STEPS} - {at} steps to be left")
    print(f"restarted: {values['param_hash']}, {values['steps']} steps were left")


def stopped(chief, starter, strike):
    undisturbed = final(chief, mlp())[1]
    flags = [*mlp(), chief.fresh(), "--save-seconds=0"]
    running = chief.begin(flags, starter=starter)
    running.wait_for_step(60)
    strike(running)
    output = running.end(60, "it was asked to stop")
    if running.process.returncode != 0 or "stopped after step" not in output:
        sys.exit(f"{output}\nexit code {running.process.returncode}")
    step = int(output.split("stopped after step ")[1].split(",")[0])
    done, values = final(chief, flags)
    expect(resumed_at(done.stdout) == step, done, f"expected to go on at step {step}")
    expect(int(values["steps"]) == STEPS - step, done, "the steps that were left")
    expect(values["param_hash"] == undisturbed["param_hash"], done, f"expected {undisturbed}")
    print(f"stopped after step {step} and gone on: {values['param_hash']}")


def check_stopped(chief):
    stopped(chief, None, lambda running: running.signal_rank(1, signal.SIGTERM))
    stopped(chief, chief.ronderun, lambda running: os.kill(running.process.pid, signal.SIGTERM))


def check_saved_on_demand(chief):
    """SIGUSR1: a checkpoint, and training goes on."""
    flags = [*mlp(), chief.fresh(), "--save-seconds=0"]
    running = chief.begin(flags)
    running.wait_for_step(50)
    running.signal_rank(1, signal.SIGUSR1)
    running.wait_until(chief.saved, 30, "a checkpoint")
    running.end(60, "it goes on")
    assert running.process.returncode == 0, running.output()
    # Said again, and at once.
    again, values = final(chief, flags)
    expect("epoch" not in again.stdout.replace("epochs=", ""), again, "it trains again")
    expect(values["steps"] == str(STEPS), again, "the line of the run that finished")


def check_other_ranks(chief):
    """Saved by four ranks, loaded by one, two and three."""
    four = final(chief, [*mlp(30), chief.fresh()], ranks=4)[1]
    saved = chief.logdir
    for ranks in (1, 2, 3):
        flags = chief.fresh()
        shutil.copytree(f"{saved}/step-30", f"{chief.logdir}/step-30")
        done, same = final(chief, [*mlp(30), flags], ranks=ranks)
        expect(same["steps"] == "0" and same["param_hash"] == four["param_hash"], done, f"expected {four}")
        loss, expected = float(same["train_loss"]), float(four["train_loss"])
        expect(abs(loss - expected) < 1e-6, done, f"expected the loss {expected}")
        done, more = final(chief, [*mlp(40), flags], ranks=ranks)
        expect(more["steps"] == "10" and more["param_hash"] != four["param_hash"], done, "ten more steps")


def check_damaged(chief):
    """A damaged checkpoint is skipped by name; one of another training is refused with what differs."""
    flags = [*mlp(), chief.fresh(), "--save-seconds=0", "--save-steps=100"]
    final(chief, flags)
    (pathlib.Path(chief.logdir) / "finished.json").unlink()
    *_, older, newest = chief.saved()
    assert newest == STEPS, chief.saved()
    newest = pathlib.Path(chief.logdir) / f"step-{newest}" / "tensors.safetensors"
    newest.write_bytes(newest.read_bytes()[:-7])
    done, values = final(chief, flags)
    expect(str(newest) in done.stdout + done.stderr, done, "the damaged file is not named")
    expect(resumed_at(done.stdout) == older and int(values["steps"]) == STEPS - older, done,
           f"expected to go on at step {older}")
    expect_refused(chief.run(TRAIN, *flags, "--learning-rate=0.5", ranks=2), "--learning-rate", "0.5")
    expect_refused(chief.run(TRAIN, *flags, "--model=cnn", ranks=2), "--model", "cnn")
    expect_refused(chief.run(TRAIN, *mlp(), "--restore=must", "--logdir=/nowhere/else"), "/nowhere/else")
    expect_refused(chief.run(TRAIN, *mlp(), "--restore=must"), "--logdir")


def check_full_disk(chief):
    """A disk that fills up: one line says so, the older checkpoint is whole, and training goes on."""
    if os.geteuid() != 0:
        print("this check mounts a small file system: it needs root")
        sys.exit(SKIPPED)
    small = pathlib.Path(chief.home) / "small"
    small.mkdir()
    # A checkpoint of the MLP is 1.2 MB.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], check=True)
    try:
        flags = [*mlp(), f"--logdir={small}", "--save-seconds=0", "--save-steps=50", "--keep=5"]
        done, whole = final(chief, flags)
        said = [line for line in done.stdout.splitlines() if "No space left on device" in line]
        expect(said, done, "nothing says that the disk is full")
        expect(all("was not written" in line for line in said), done, "the lines say what happened")
        (small / "finished.json").unlink(missing_ok=True)
        done, rest = final(chief, flags)
        expect(resumed_at(done.stdout) >= 50, done, "an older checkpoint is whole")
        expect(rest["param_hash"] == whole["param_hash"], done, f"expected {whole}")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def check_logs(chief):
    """metrics.jsonl has each interval once, whatever happened; the evaluator scores what is saved."""
    flags = [*mlp(), chief.fresh(), "--save-seconds=0", "--save-steps=40", "--keep=20"]
    evaluator = Running([chief.path(TRAIN), "--job=evaluate", f"--logdir={chief.logdir}", "--test-images=500",
                         "--idle-seconds=60"])
    running = chief.begin(flags)
    running.wait_for_step(130)
    running.signal_rank(0, signal.SIGKILL)
    running.end(60, "a rank is dead")
    done, values = final(chief, [*flags, "--log-every=10"])
    lines = [json.loads(line) for line in open(f"{chief.logdir}/metrics.jsonl", encoding="utf-8")]
    steps = [line["step"] for line in lines if "train/loss" in line]
    expect(steps == sorted(set(steps)) and steps[-1] == STEPS, done, f"steps twice or out of order: {steps}")
    for key in ("train/accuracy", "train/learning_rate", "speed/images_per_second", "speed/wait_share",
                "speed/straggler"):
        expect(key in lines[0], done, f"no {key} in {lines[0]}")
    output = evaluator.end(60, "the training has finished")
    assert evaluator.process.returncode == 0, output
    scored = int(output.split("checkpoints_scored=")[1])
    assert scored >= 3 and f"step {STEPS}: loss" in output, output
    accuracy = float(output.split(f"step {STEPS}: loss")[1].split("accuracy ")[1].split()[0])
    assert abs(accuracy - float(values["test_accuracy"])) < 1e-4, f"{output}\n{values}"
    print(f"{scored} checkpoints scored")


def check_early_stopping(chief):
    """All ranks end after the same epoch, and a patience that is never reached is warned of."""
    flags = ["--early-stopping=on", "--learning-rate=1e-30", "--patience=1", "--epochs=5", "--test-images=500",
             "--global-batch=1024"]
    done, values = final(chief, flags, ranks=3)
    expect("early stopping: no gain for 1 epoch, ended after epoch 2" in done.stdout, done, "no line about it")
    expect(values["steps"] == "118", done, "two epochs of 59 steps")
    flags[2:4] = ["--patience=2", "--epochs=2"]
    done = final(chief, flags)[0]
    expect("it cannot end this training early" in done.stdout, done, "no warning")


def check_two_classes(chief):
    """The other example has the same duties."""
    flags = ["--steps=60", "--batch=16", "--save-seconds=0", "--save-steps=20"]
    name = "classify_two_classes"
    whole = result(chief.run(name, *flags, chief.fresh(), ranks=2))
    first = chief.run(name, *["--steps=30", *flags[1:]], chief.fresh(), ranks=2)
    rest = chief.run(name, *flags, f"--logdir={chief.logdir}", "--verbose", ranks=2)
    last = dict(pair.split("=", 1) for pair in rest.stdout.splitlines()[-1].split())
    expect(resumed_at(rest.stdout) == 30 and last["steps"] == "30", rest, f"30 steps were left after\n{first.stdout}")
    expect(last["param_hash"] == whole["param_hash"], rest, f"expected {whole}")
    expect("talks to" in rest.stdout, rest, "no table of ranks")
    expect_refused(chief.run(name, *flags, f"--logdir={chief.logdir}", ranks=3), "ranks", ours=name + ": ")


def check_supervised_loop(chief):
    """The program of the training core's page."""
    folder = chief.fresh().split("=", 1)[1]
    whole = chief.run("supervised_loop", folder + "/whole", "1", ranks=2)
    expect(whole.returncode == 0 and whole.stdout.splitlines()[-1].startswith("steps=469 "), whole, "an epoch")
    running = Running([chief.mpirun, "--bind-to", "none", "--oversubscribe", "-np", "2",
                       chief.path("supervised_loop"), folder + "/cut", "1"])
    running.wait_until(lambda: list(pathlib.Path(folder).glob("cut/step-*[0-9]")), 60, "a checkpoint")
    os.kill(running.wait_until(lambda: running.find_rank(1, "supervised_loop"), 10, "rank 1"), signal.SIGTERM)
    running.end(60, "it was asked to stop")
    assert running.process.returncode == 0, running.output()
    rest = chief.run("supervised_loop", folder + "/cut", "1", ranks=2)
    expect(rest.returncode == 0 and rest.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1], rest,
           f"expected {whole.stdout}")


def main():
    chief = Chief(*sys.argv[2:5])
    try:
        globals()["check_" + sys.argv[1]](chief)
    finally:
        shutil.rmtree(chief.home, ignore_errors=True)


if __name__ == "__main__":
    main()
