#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a directory of checkpoints and its disk may do to a training: nothing that was saved is lost, and no training
that is not on the disk ends well.

usage: chief_disk.py CHECK FOLDER_OF_PROGRAMS MPIRUN RONDERUN FAULTY_DISK
"""
import json
import signal

from chief_trainings import (CONFIGURATION, FAILED, STEPS, expect_rest, final, mlp, resize, result_values, resumed_at,
                             run_check, small_disk)
from programs import TRAIN, expect, expect_refused


def refused(chief, flags, code, *parts, **how):
    """A start that must end at once with this code, and with all of these parts in its line."""
    done = chief.run(TRAIN, *flags, seconds=60, **how)
    expect(done.returncode == code, done, f"expected exit code {code}")
    expect_refused(done, *parts, longest=600)


def check_damaged(chief):
    """A damaged checkpoint is skipped by name, and put aside; one of another training is refused with what differs."""
    flags = [*mlp(), chief.fresh(), "--save-seconds=0", "--save-steps=100"]
    whole = final(chief, flags)[1]
    chief.file("training.json").unlink()
    *_, older, newest = chief.saved()
    assert newest == STEPS, chief.saved()
    tensors = chief.file(f"step-{newest}") / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-7])
    done = expect_rest(chief, flags, older, whole)
    expect(str(tensors) in done.stdout + done.stderr, done, "the damaged file is not named")
    refused(chief, [*flags, "--learning-rate=0.5"], CONFIGURATION, "learning rate", "0.5", ranks=2)
    refused(chief, [*flags, "--model=cnn"], CONFIGURATION, "--model", "cnn", ranks=2)
    refused(chief, [*mlp(), "--restore=must", "--logdir=/tmp/nowhere/else"], CONFIGURATION, "/tmp/nowhere/else")
    refused(chief, [*mlp(), "--restore=must"], 2, "--logdir")
    # Where none is whole it does not begin anew.
    for step in chief.saved():
        (chief.file(f"step-{step}") / "state.json").write_text("{")
    refused(chief, flags, CONFIGURATION, "is whole", "--restore never")
    assert newest in chief.saved() and older in chief.saved(), chief.saved()


def check_unreadable(chief):
    """What cannot be read may be whole: it is named, and nothing is skipped or begun anew."""
    flags = [*mlp(60), chief.fresh(), "--save-seconds=0", "--save-steps=20"]
    final(chief, flags, ranks=1)
    chief.file("training.json").unlink()
    before, log = chief.saved(), chief.file("metrics.jsonl").read_text()
    for file in ("state.json", "tensors.safetensors"):
        closed = chief.file("step-60") / file
        refused(chief, flags, FAILED, str(closed), "Permission denied", environment=chief.faults(closed=closed))
    assert chief.saved() == before and chief.file("metrics.jsonl").read_text() == log, chief.saved()
    refused(chief, [*mlp(60), "--logdir=/proc/nowhere/logs"], FAILED, "/proc/nowhere")
    done, values = final(chief, flags, ranks=1)
    expect(resumed_at(done.stdout) == 60 and values["steps"] == "0", done, "it goes on from the newest")


def check_never(chief):
    """--restore never hides the checkpoints of before until there is a new one; only its own job's restart goes on."""
    last = 450  # within an epoch, at whose end all is saved
    flags = [*mlp(last), "--save-seconds=0"]
    other = final(chief, [*flags, "--seed=2", chief.fresh()], ranks=1)[1]
    flags.append(chief.fresh())
    whole = final(chief, flags, ranks=1)[1]
    never = [*flags, "--restore=never", "--seed=2"]
    first, second = ({"RONDE_RESTART_JOB": name} for name in ("first", "second"))

    def killed_at(step, *more):
        running = chief.begin([*never, *more], ranks=1, environment=first)
        running.wait_for_step(step)
        running.process.send_signal(signal.SIGKILL)
        running.end(60, "it was killed")
        return running

    # Killed before it has saved anything: what was there is there.
    killed_at(20)
    assert chief.saved() == [last], chief.saved()
    refused(chief, flags, CONFIGURATION, "of an earlier training", f"--restore step-{last}", "--restore never")
    # Killed once more, and later.
    assert killed_at(120, "--save-steps=50").resumed_at() == 0
    newest = max(step for step in chief.saved() if step != last)  # which may be there still: it goes after the next is there
    assert 50 <= newest < last, chief.saved()
    # The restart of the same job goes on; another job's start with the same words begins anew.
    expect_rest(chief, never, newest, other, last, ranks=1, environment=first)
    done, again = final(chief, never, ranks=1, environment=second)
    expect(resumed_at(done.stdout) == 0 and again["param_hash"] == other["param_hash"], done, "it begins anew")
    assert whole["param_hash"] != other["param_hash"]


def check_changes(chief):
    """A resume is the training that was asked for, or it is said what changes."""
    flags = ["--schedule=cosine", "--learning-rate=0.01", "--test-images=500", "--save-seconds=0", chief.fresh()]
    final(chief, [*flags, "--epochs=1", "--steps=100"], ranks=1)
    longer = [*flags, "--epochs=2", "--steps=120"]
    refused(chief, longer, CONFIGURATION, "cosine over 469 steps", "cosine over 938 steps", "--accept-changes on")
    refused(chief, [*flags, "--epochs=1", "--steps=120", "--global-batch=64"], CONFIGURATION, "batches of 128",
            "batches of 64")
    assert chief.saved() == [100], chief.saved()
    done, values = final(chief, [*longer, "--accept-changes=on"], ranks=1)
    expect(resumed_at(done.stdout) == 100 and values["steps"] == "20", done, "it goes on")
    expect("another training from here on" in done.stdout and "938" in done.stdout, done, "what changes is not said")
    # What does not change the maths may be otherwise.
    done, values = final(chief, [*longer[:-1], "--steps=130", "--gradients=board"], ranks=1)
    expect(values["steps"] == "10", done, "it goes on")


def check_full(chief):
    """A disk that fills up: the oldest checkpoint goes, and training goes on; where the last one cannot be saved all
    the same, the training has failed. A checkpoint of this MLP with Adam has 1.2 MB."""
    with small_disk(chief.home, 4) as small:
        chief.logdir = str(small)
        flags = [*mlp(), f"--logdir={small}", "--save-seconds=0", "--save-steps=50", "--keep=5"]
        done, whole = final(chief, flags)
        expect("the disk is full: the checkpoint of step 50 is removed to make room" in done.stdout, done, "what goes")
        expect("was not written" not in done.stdout, done, "all of them could be written")
        chief.file("training.json").unlink()
        expect_rest(chief, flags, STEPS, whole)  # it is whole
    with small_disk(chief.home, 2) as small:
        chief.logdir = str(small)
        flags = [*mlp(), f"--logdir={small}", "--save-seconds=0", "--save-steps=200"]
        done = chief.run(TRAIN, *flags, ranks=2)
        expect(done.returncode == FAILED and result_values(done.stdout) is None, done, "no end without the weights")
        expect("checkpoint of step 1000 was not written" in done.stdout, done, "why")
        expect("No space left on device" in done.stdout and "the last one, is not saved" in done.stderr, done, "why")
        assert chief.saved() == [200], chief.saved()
        resize(small, 8)
        expect_rest(chief, flags, 200, whole)


def check_hanging(chief):
    """A disk that does not answer costs --save-timeout, and a success only where the weights are on it; a slow one is
    not waited for but at the end."""
    timeout, steps = 3, 300
    whole = final(chief, mlp(steps))[1]
    flags = [*mlp(steps), "--save-seconds=0", "--save-steps=100"]
    for ending, code in (("tensors.safetensors", FAILED), ("training.json.tmp", 0)):
        logdir = chief.fresh()
        running = chief.begin([*flags, logdir, f"--save-timeout={timeout}"], says_steps=False,
                              environment=chief.faults(sync_seconds=1000, sync_ending=ending))
        running.wait_until(lambda: "epoch 1/1" in running.output(), 60, "the end of the steps")
        output = running.end_with(code, f"has not answered for {timeout} s", seconds=5 * timeout)
        assert (result_values(output) is None) == (code != 0), f"a result of which there is no copy\n{output}"
        expect_rest(chief, [*flags, logdir], steps if code == 0 else 0, whole, steps)
    flags += [chief.fresh()]
    # So slow that a hundred steps are quicker, also where ranks wait for a core.
    done = final(chief, flags, environment=chief.faults(sync_seconds=6, sync_ending="tensors.safetensors"))[0]
    expect("of step 100 is still being written: that of step 200 is passed over" in done.stdout, done, "not said")
    chief.file("training.json").unlink()
    expect_rest(chief, flags, steps, whole, steps)


def check_tool(chief):
    """ronde-checkpoint: what is there, whether it is whole, and the parameters without the moments."""
    def tool(code, *words):
        done = chief.run("ronde-checkpoint", *words)
        expect(done.returncode == code, done, f"expected exit code {code}")
        return done

    final(chief, [*mlp(60), chief.fresh(), "--save-seconds=0", "--save-steps=20", "--keep=9"], ranks=1)
    steps = chief.saved()
    assert len(steps) > 1, steps
    done = tool(0, "list", chief.logdir)
    lines = done.stdout.splitlines()
    expect([line.split("\t")[0] for line in lines[:-1]] == [str(chief.file(f"step-{step}")) for step in steps]
           and f"step {steps[0]} of it" in lines[0] and lines[-1].startswith("finished at step 60: "), done, "a list")
    done = tool(0, "verify", chief.logdir)
    expect(done.stdout.count(" is whole: ") == len(steps), done, "all are whole")
    exported = chief.file("exported.safetensors")
    for path in (chief.logdir, str(chief.file("step-60"))):
        tool(0, "export", path, str(exported))
        names = tensors_of(exported)
        whole = tensors_of(chief.file("step-60") / "tensors.safetensors")
        assert names.pop("__metadata__") == {"step": "60"}, names
        left_out = set(whole) - set(names)
        assert set(names) < set(whole) and left_out and all(name.startswith("moment") for name in left_out), (names, left_out)
        assert all(whole[name]["shape"] == tensor["shape"] for name, tensor in names.items()), names
        exported.unlink()
    # One of them is damaged.
    file = chief.file(f"step-{steps[0]}") / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    done = tool(1, "verify", chief.logdir)
    expect(f"{file}: its checksum is" in done.stdout and done.stdout.count(" is whole: ") == len(steps) - 1, done, "one")
    tool(0, "verify", str(chief.file("step-60")))
    tool(1, "export", str(file.parent), str(exported))
    assert not exported.exists()
    expect("there is no checkpoint" in tool(1, "verify", chief.home).stderr, done, "none")
    tool(2, "verify")


def tensors_of(file):
    """The header of a safetensors file."""
    data = file.read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


if __name__ == "__main__":
    run_check(globals())
