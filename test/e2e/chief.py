#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the chief does for a training: whatever ends it, it goes on to the very same parameters.

usage: chief.py CHECK FOLDER_OF_PROGRAMS MPIRUN RONDERUN FAULTY_DISK
"""
import json
import os
import pathlib
import random
import shutil
import signal
import time

from chief_trainings import (CONFIGURATION, FAILED, STEPS, STOPPED, Running, cnn, expect_rest, final, mlp, resumed_at,
                             result_values, run_check, stopped_after)
from programs import TRAIN, expect, expect_refused, late, result

STEPS_OF_EPOCH = 469  # of supervised_loop: 60,000 samples in batches of 128


def killed(chief, flags, steps, interval, kills, seed):
    """Kills a random rank at random steps, and starts the training again each time."""
    undisturbed = final(chief, flags)[1]
    flags = [*flags, chief.fresh(), "--save-seconds=0", f"--save-steps={interval}", "--save-on-failure=off"]
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
        # A signal takes its time, and a training that has come to its end meanwhile was not killed.
        running.wait_for_step(min(step, steps - interval // 2))
        running.wait_until(chief.saved, 60, "a checkpoint")
        running.signal_rank(draw.randrange(2), signal.SIGKILL)
        running.end(60, "a rank is dead")
        last, newest = running.steps()[-1], chief.saved()[-1]
        assert running.process.returncode not in (0, STOPPED, CONFIGURATION), running.output()
        assert all(saved % interval == 0 or saved % 469 == 0 for saved in chief.saved()), \
            f"saved after the failure: {chief.saved()}"
    assert newest > 0, "it begins anew"
    expect_rest(chief, flags, newest, undisturbed, steps)
    print(f"{kills} kills: {undisturbed['param_hash']}, as undisturbed")


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
    running = Running([chief.ronderun, "--restarts", "2", "-np", "2", chief.path(TRAIN), chief.data, *flags,
                       "--log-every=1"])
    running.wait_for_step(120)
    running.signal_rank(1, signal.SIGKILL)
    values = result_values(running.end_with(0, seconds=120))
    at = running.resumed_at()
    assert at > 0 and int(values["steps"]) == STEPS - at, f"{running.output()}\nresumed at {at}"
    assert values["param_hash"] == undisturbed["param_hash"], f"{running.output()}\nexpected {undisturbed}"
    print(f"restarted: {values['param_hash']}, {values['steps']} steps were left")


def check_stopped(chief):
    """SIGTERM to a rank or to ronderun, SIGUSR2 to mpirun: the code for "stopped and saved", and the rest later. The
    disk is slow, so that a rank that does not wait for the chief's save takes the chief with it: mpirun kills all at
    the first code that is not 0."""
    undisturbed = final(chief, mlp())[1]
    for starter, strike in (
            (None, lambda running: running.signal_rank(1, signal.SIGTERM)),
            (None, lambda running: os.kill(running.process.pid, signal.SIGUSR2)),
            (chief.ronderun, lambda running: os.kill(running.process.pid, signal.SIGTERM))):
        flags = [*mlp(), chief.fresh(), "--save-seconds=0"]
        running = chief.begin(flags, starter=starter, environment=chief.faults(sync_seconds=0.4))
        running.wait_for_step(60)
        strike(running)
        step = stopped_after(running.end_with(STOPPED, "stopped after step "))
        expect_rest(chief, flags, step, undisturbed)
        print(f"stopped after step {step} and gone on: {undisturbed['param_hash']}")


def check_time_limit(chief):
    """A training that knows when its time is over stops before."""
    flags = ["--epochs=1000", "--test-images=500", "--save-seconds=0"]
    for more, environment, code in (
            (["--max-seconds=1"], {}, STOPPED),
            (["--stopped-exit-code=0"], {"SLURM_JOB_END_TIME": str(int(time.time()) + 4)}, 0)):
        done = chief.run(TRAIN, *flags, chief.fresh(), *more, seconds=60, environment=environment)
        expect(done.returncode == code, done, f"expected {code}")
        late.at_most(done.seconds, 20, "a training with a time limit")
        expect(chief.saved()[-1] == stopped_after(done.stdout), done, f"saved: {chief.saved()}")
        expect(result_values(done.stdout) is None, done, "it has not finished")
    done = chief.run(TRAIN, *flags, "--max-seconds=0.5", seconds=60)
    expect(done.returncode == FAILED and "nothing is saved without a logdir" in done.stdout, done, "no checkpoint")


def check_saved_on_failure(chief):
    """Another rank dies: the chief saves what the last step came to. mpirun leaves it a second for that."""
    undisturbed = final(chief, mlp())[1]
    for _ in range(3):  # nothing is saved between the update of a step and its end
        flags = [*mlp(), chief.fresh(), "--save-seconds=0", "--save-steps=50"]
        running = chief.begin(flags, says_steps=False)
        running.wait_until(chief.saved, 60, "a checkpoint")
        running.signal_rank(1, signal.SIGKILL)
        output = running.end(60, "a rank is dead")
        assert running.process.returncode not in (0, STOPPED, CONFIGURATION), output
        if "another rank has ended: step " in output:
            step = int(output.split("another rank has ended: step ")[1].split()[0])
            assert chief.saved()[-1] == step, f"{output}\n{chief.saved()}"
            expect_rest(chief, flags, step, undisturbed)
            print(f"saved after the death of another: step {step}")
            return
    raise AssertionError(f"nothing was saved:\n{output}")


def check_after_save(chief):
    """A command for each checkpoint; where that of the last one fails the training has not come to a good end."""
    flags = [*mlp(60), chief.fresh(), "--save-seconds=0", "--save-steps=20"]
    seen = chief.file("seen")
    command = f'test -f "$RONDE_CHECKPOINT/state.json" && basename "$RONDE_CHECKPOINT" >>{seen}'
    done = final(chief, [*flags, f"--after-save={command}"], ranks=1)[0]
    steps = [int(line.removeprefix("step-")) for line in seen.read_text().splitlines()]
    expect(steps and steps[-1] == 60 and set(steps) <= {20, 40, 60}, done, f"the command was run for {steps}")
    done = chief.run(TRAIN, *flags[:-3], chief.fresh(), "--after-save=exit 3")
    expect(done.returncode == FAILED and "has ended with 3" in done.stdout, done, "a command that fails")
    expect(result_values(done.stdout) is None, done, "a result of which there is no copy")


def check_saved_on_demand(chief):
    """SIGUSR1: a checkpoint, and training goes on."""
    flags = [*mlp(), chief.fresh(), "--save-seconds=0"]
    running = chief.begin(flags)
    running.wait_for_step(50)
    running.signal_rank(1, signal.SIGUSR1)
    running.wait_until(chief.saved, 30, "a checkpoint")
    running.end_with(0)
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


def check_logs(chief):
    """metrics.jsonl has each interval once, whatever happened; the evaluator scores what is saved."""
    flags = [*mlp(), chief.fresh(), "--save-seconds=0", "--save-steps=40", "--keep=20"]
    evaluator = Running([chief.path(TRAIN), chief.data, "--job=evaluate", f"--logdir={chief.logdir}",
                         "--test-images=500", "--idle-seconds=60"], {"TF_CONFIG": json.dumps(
                             {"cluster": {"worker": ["127.0.0.1:2222", "127.0.0.1:2223"]},
                              "task": {"type": "evaluator", "index": 0}})})
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
    output = evaluator.end_with(0, "the training has finished")
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
    expect("MultiWorkerMirrored: 2 workers, 2 replicas, communication auto: " in rest.stdout, rest, "no choice")
    refused = chief.run(name, *flags, f"--logdir={chief.logdir}", ranks=3)
    expect_refused(refused, "ranks was 2 and is now 3", ours=name + ": ", longest=600)
    expect(refused.returncode == CONFIGURATION, refused, "another start would fail alike")


def check_supervised_loop(chief):
    """The program of the training core's page."""
    folder = pathlib.Path(chief.fresh().split("=", 1)[1])
    # So many epochs that it cannot end before the signal.
    running = Running([chief.mpirun, "--bind-to", "none", "--oversubscribe", "-np", "2",
                       chief.path("supervised_loop"), "--logdir", f"{folder}/cut", "--epochs", "1000"])
    running.wait_until(lambda: list(folder.glob("cut/step-*[0-9]")), 60, "a checkpoint")
    running.signal_rank(1, signal.SIGTERM, "supervised_loop")
    running.end_with(STOPPED)
    stopped = max(int(name.name.removeprefix("step-")) for name in folder.glob("cut/step-*[0-9]"))
    epochs = stopped // STEPS_OF_EPOCH + 2
    whole, rest = (chief.run("supervised_loop", "--logdir", f"{folder}/{name}", "--epochs", str(epochs), ranks=2)
                   for name in ("whole", "cut"))
    expect(whole.returncode == 0 and whole.stdout.splitlines()[-1].startswith(f"steps={epochs * STEPS_OF_EPOCH} "),
           whole, f"{epochs} epochs")
    expect(rest.returncode == 0 and rest.stdout.splitlines()[-1] == whole.stdout.splitlines()[-1], rest,
           f"expected {whole.stdout}")


if __name__ == "__main__":
    run_check(globals())
