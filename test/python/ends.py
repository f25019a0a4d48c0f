#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a program in Python may end: forks, exits and exceptions with operations in flight, by whole jobs.

usage: ends.py MPIEXEC            runs every scenario on two ranks
       ends.py --rank SCENARIO    what a rank does in it
"""
import os
import pathlib
import subprocess
import sys

import numpy

import ronde

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

# A wait for a rank that never comes would end after this long, and the tests below expect it sooner.
STALL_SECONDS = 60


def plain_exit():
    """Nobody closes anything."""
    ronde.init()
    ronde.allreduce(numpy.ones(3))
    engine = ronde.Engine()
    engine.allreduce("a", numpy.ones(3)).wait()


def exit_in_flight():
    """A rank ends with a work that the other one never submits, and whose array nobody holds."""
    ronde.init()
    if ronde.rank() == 0:
        ronde.allreduce_async(numpy.ones(1 << 20), name="lonely")
    ronde.barrier()


def exit_joined_late():
    """Both ranks submit and end at once: it is completed."""
    ronde.init()
    ronde.allreduce_async(numpy.ones(1 << 20), name="late")


def exception():
    """Rank 0 raises with a work in flight; rank 1 waits for what never comes."""
    ronde.init()
    if ronde.rank() == 0:
        ronde.allreduce_async(numpy.ones(10), name="half done")
        raise KeyError("the trainer is wrong")
    ronde.allreduce(numpy.ones(10), name="never")


def exception_in_block():
    """The same, where rank 0 handles it: the engine has left the job at the end of its block."""
    work = None
    try:
        with ronde.Engine() as engine:
            if engine.rank == 0:
                work = engine.allreduce("half done", numpy.ones(10))
                raise KeyError("the trainer is wrong")
            engine.allreduce("never", numpy.ones(10)).wait()
    except KeyError:
        assert not engine.is_open
        try:
            work.wait()
        except ronde.Error as error:
            print(f"the work says: {error}", flush=True)


def deadlock():
    """The main threads wait for each other, in slices because of signals: it is said at once all the same."""
    os.environ["RONDE_DEADLOCK_GRACE_SECONDS"] = "0.5"
    ronde.init()
    try:
        ronde.allreduce(numpy.ones(10), name=f"of rank {ronde.rank()}")
    except ronde.Error as error:
        print(f"rank {ronde.rank()} hears: {error}", flush=True)


def fork():
    """A child can do nothing, says so, and ends as it likes; the parent goes on."""
    ronde.init()
    work = ronde.allreduce_async(numpy.ones(3), name="before")
    child = os.fork()
    if child == 0:
        assert not ronde.is_initialized()
        for call in (lambda: ronde.allreduce(numpy.ones(1), name="child"), work.wait, ronde.init):
            try:
                call()
            except ronde.Error as error:
                assert error.status in (ronde.Status.UNSUPPORTED, ronde.Status.OK), error
                print(f"the child hears: {error}", flush=True)
        sys.exit(5)  # with everything that runs at exit
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    work.wait()
    assert ronde.allreduce(numpy.ones(1), op=ronde.Sum)[0] == ronde.size()


# scenario -> (exit code is 0, seconds that it may take, words that must be printed)
EXPECTED = {
    plain_exit: (True, 20, []),
    exit_in_flight: (True, 20, ["ronde: ", "'allreduce.lonely'"]),
    exit_joined_late: (True, 20, []),
    exception: (False, 30, ["KeyError: 'the trainer is wrong'", "left behind by an exception on rank 0"]),
    exception_in_block: (False, 30, ["the work says: 'half done' was given up", "left behind by an exception on rank 0"]),
    deadlock: (False, 30, ["rank 0 hears: deadlock: all ranks stand still", "rank 1 hears: deadlock: all ranks stand still",
                           "rank 0 waits for 'allreduce.of rank 0' (ends.py:", "the job fails in 0.5 s"]),
    fork: (True, 20, ["the child hears"]),
}


def check(mpiexec, scenario):
    succeeds, seconds, words = EXPECTED[scenario]
    environment = dict(os.environ, RONDE_STALL_FAILURE_SECONDS=str(STALL_SECONDS), RONDE_SHUTDOWN_TIMEOUT_SECONDS="2")
    job = late.run([mpiexec, "--bind-to", "none", "--oversubscribe", "-np", "2", sys.executable, "-B", __file__,
                    "--rank", scenario.__name__], seconds, scenario.__name__, env=environment, stderr=subprocess.STDOUT)
    wrong = [f"no word of {word!r}" for word in words if word not in job.stdout]
    if (job.returncode == 0) != succeeds:
        wrong.append(f"exit code {job.returncode}")
    print(f"{scenario.__name__}: {job.seconds:.1f} s" + "".join(f", {one}" for one in wrong))
    if wrong or os.environ.get("SHOW"):
        print(job.stdout)
    return not wrong


def main():
    if sys.argv[1] == "--rank":
        globals()[sys.argv[2]]()
        return 0
    return 0 if all([check(sys.argv[1], scenario) for scenario in EXPECTED]) else 1


if __name__ == "__main__":
    late.end(main)
