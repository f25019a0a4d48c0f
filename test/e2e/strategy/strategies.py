#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strategies in processes of their own: replicas of one process have the bits of as many processes.

    strategies.py CHECK PROGRAM MPIRUN

runs one check (see CHECKS). Exit code 0: it holds.
"""

import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

SECONDS = 100


class Program:
    def __init__(self, program, mpirun):
        self.program, self.mpirun = program, mpirun

    def run(self, strategy, replicas, *words, ranks=0, environment=None):
        """One run, alone or with so many ranks; returns what it has done."""
        line = [self.program, strategy, str(replicas), *map(str, words)]
        if ranks:
            line = [self.mpirun, "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *line]
        more = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(environment or {})}
        return late.run(line, SECONDS, env={**os.environ, **more})

    def line(self, *arguments, **more):
        """The last line of a run that ends well."""
        done = self.run(*arguments, **more)
        assert done.returncode == 0, f"{done.args} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout.splitlines()[-1]


def check_bits(program):
    """Mirrored(n) gives the bits of n processes, in everything that it computes."""
    for replicas in (2, 4):
        mirrored = program.line("mirrored", replicas, "bits")
        processes = program.line("multiworker", 1, "bits", ranks=replicas)
        assert mirrored == processes, f"{replicas} replicas:\n{mirrored}\n{processes}"
        values = dict(word.split("=") for word in mirrored.split())
        assert values["replicas"] == str(replicas) and values["predicted"] == "1000", mirrored
        assert values["shards"] == values["chief"] == values["own"], mirrored
        assert values["ranks"] == "".join(f"{rank}," for rank in range(replicas)), mirrored
        assert float(values["accuracy"]) > 0.5, mirrored
        assert program.line("central", replicas, "bits") == mirrored
    # Two in each of two processes.
    assert program.line("multiworker", 2, "bits", ranks=2) == mirrored


def check_arrays(program):
    """Arrays that each process should give whole are refused where they are not the same."""
    assert program.line("multiworker", 1, "arrays", "none", ranks=2) == "fitted"
    for odd in ("inputs", "answers"):
        done = program.run("multiworker", 1, "arrays", odd, ranks=2)
        assert done.returncode == 78, f"{odd}: ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert f"the {odd} of process 1 are others than those of process 0: give each process" in done.stderr, done.stderr


def check_save(program):
    """What one strategy has saved another one restores."""
    def save(strategy, replicas, logdir, steps, ranks=0):
        line = program.line(strategy, replicas, "save", logdir, steps, ranks=ranks)
        values = dict(word.split("=") for word in line.split())
        return int(values["steps"]), values["param_hash"]

    with tempfile.TemporaryDirectory(prefix="ronde_strategy_") as folder:
        all_steps, whole = save("mirrored", 2, "", 1000)
        taken = 0
        logdir = str(pathlib.Path(folder) / "train")
        for strategy, replicas, steps, ranks in (("mirrored", 2, 10, 0), ("multiworker", 1, 10, 2),
                                                 ("central", 2, 10, 0), ("mirrored", 2, 1000, 0)):
            done, last = save(strategy, replicas, logdir, steps, ranks)
            taken += done
            assert (last == whole) == (steps == 1000), f"{strategy} after {steps} steps: {last}, whole: {whole}"
        assert taken == all_steps, f"{taken} steps in four sessions, and {all_steps} in one: it began anew"


def tf_config(cluster, task):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, **({"task": task} if task else {})})}


def check_tf_config(program):
    """Mistakes in TF_CONFIG are a line each."""
    two = {"worker": ["127.0.0.1:29871", "127.0.0.1:29872"]}
    mistakes = {
        "says no task": tf_config(two, None),
        "index": tf_config(two, {"type": "worker", "index": 2}),
        "JSON": {"TF_CONFIG": "{\"cluster\": {"},
        "chief": tf_config({"chief": ["127.0.0.1:29871", "127.0.0.1:29873"], **two}, {"type": "worker", "index": 0}),
    }
    for word, environment in mistakes.items():
        done = program.run("multiworker", 1, "bits", environment=environment)
        assert done.returncode != 0, f"{environment} was taken"
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and "TF_CONFIG" in lines[0], f"{word}: {lines}"
        print(lines[0])
    done = program.run("multiworker", 1, "bits", ranks=2)
    assert "MultiWorkerMirrored: 2 workers, 2 replicas, communication auto: shared memory of the host" in done.stdout, done


CHECKS = {"arrays": check_arrays, "bits": check_bits, "save": check_save, "tf_config": check_tf_config}

if __name__ == "__main__":
    late.end(lambda: CHECKS[sys.argv[1]](Program(*sys.argv[2:])))
