#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A chief that is killed between any two system calls of a save leaves a whole checkpoint: the one before, or the one
it was writing. What has the name of a checkpoint has been synced before.

usage: killed.py WRITER SHIM
"""
import os
import pathlib
import shutil
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

# The calls of the second start in a directory, which takes it and saves step 2 after step 1, of which one is kept, and
# then step 2 once more. The 2 behind the dot is the start's term.
TAKEN = ["mkdir .", "open ./lock", "open ./owner-2", "write ./owner-2"]
WRITTEN = ["mkdir 2.2.tmp", "open 2.2.tmp/tensors.safetensors", "write 2.2.tmp/tensors.safetensors",
           "fsync 2.2.tmp/tensors.safetensors", "open 2.2.tmp/state.json", "write 2.2.tmp/state.json",
           "fsync 2.2.tmp/state.json", "fsync 2.2.tmp", "rename 2.2.tmp"]
FIRST = TAKEN + WRITTEN + ["fsync .", "rename 1"]
# A directory takes no other's name while that one has files in it.
AGAIN = WRITTEN + ["rename 2", "rename 2.2.tmp", "fsync .", "write ./owner-2"]


def writer(line, below=None, kill_before=0, shim=None):
    env = dict(os.environ)
    if shim:
        env.update(LD_PRELOAD=shim, RONDE_TEST_BELOW=below, RONDE_TEST_KILL_BEFORE=str(kill_before))
    return late.run(line, 120, env=env)


def calls_of(done, folder):
    """The calls that the shim has printed, with names relative to the folder; not those of the library that remove."""
    lines = done.stderr.replace(folder + "/step-", "").replace(folder, ".").splitlines()
    return [line for line in lines if not line.startswith("remove ")]


def kill_everywhere(program, shim, top, prepared, saves, results):
    """Kills saves before every call; what a restart goes on from must be the results, in this order."""
    folders = []
    for number in range(1, 1000):
        folder = f"{top}/{len(saves)}.{number}"
        shutil.copytree(prepared, folder)
        done = writer([program, "save", folder, *saves], folder, number, shim)
        folders.append(folder)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, f"call {number}: {done}"
    shown = writer([program, "show", *folders])
    assert shown.returncode == 0, shown
    found = shown.stdout.splitlines()
    assert len(found) == len(folders), shown.stdout  # nothing was skipped
    order = [results.index(line) if line in results else -1 for line in found]
    assert order == sorted(order) and set(order) == set(range(len(results))), found
    for folder in folders:
        assert not [name for name in os.listdir(folder) if name.endswith(".tmp")], os.listdir(folder)
    print(f"killed before each of {len(folders) - 1} calls: {', '.join(sorted(set(found)))}")


def main():
    program, shim = sys.argv[1:]
    with tempfile.TemporaryDirectory() as top:
        prepared = top + "/prepared"
        os.mkdir(prepared)
        kill_everywhere(program, shim, top, prepared, ["1:1"], ["none", "1:1"])

        assert writer([program, "save", prepared, "1:1"]).returncode == 0
        traced = top + "/traced"
        shutil.copytree(prepared, traced)
        done = writer([program, "save", traced, "2:2", "2:3"], traced, 0, shim)
        assert done.returncode == 0 and calls_of(done, traced) == FIRST + AGAIN, done.stderr
        kill_everywhere(program, shim, top, prepared, ["2:2", "2:3"], ["1:1", "2:2", "2:3"])


if __name__ == "__main__":
    late.end(main)
