#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchrun itself, of PyPI's torch, starts programs of Ronde: they find each other by its variables, train to the bits
of ranks that were started by hand, and name a rank that dies.

usage: torchrun.py FOLDER      (FOLDER: of the example programs)

Downloads torch from PyPI into a folder of the user's cache, once: a test of ./dev test full.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "start")]
import from_pypi  # noqa: E402
import start  # noqa: E402
from programs import late  # noqa: E402

PACKAGES = ("torch==2.15.0",)
LIMIT = 240  # seconds; torch is slow to load
# A rank that tells where it is, so that the test can kill it. A file, since torchrun changes "$$" in arguments.
TELL = """folder=$1
shift
echo $$ >"$folder/rank-$RANK.tmp"
mv "$folder/rank-$RANK.tmp" "$folder/rank-$RANK"
exec "$@"
"""


def torchrun(ranks, *words):
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--no-python", *words]
    return subprocess.Popen([str(word) for word in line], env=start.clean(OMP_NUM_THREADS=1), text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end(job):
    said = late.finish(job, LIMIT)
    return subprocess.CompletedProcess(job.args, job.returncode, *said)


def check_bits(folder):
    program, *flags = start.TRAIN
    for ranks in (1, 2, 3):
        by_hand = start.values(start.Job(folder).run(start.TRAIN, start.by_hand(ranks)))
        done = end(torchrun(ranks, folder / program, *flags))
        start.expect(done.returncode == 0, done, "torchrun failed")
        found = re.findall(r"ranks=(\d+) .*param_hash=([0-9a-f]{16})", done.stdout)
        start.expect(found == [(by_hand["ranks"], by_hand["param_hash"])], done, f"expected the bits of {by_hand}")
        print(f"{ranks} under torchrun: param_hash={by_hand['param_hash']}, as by hand", flush=True)


def check_death(folder):
    with tempfile.TemporaryDirectory(prefix="ronde_torchrun_") as name:
        marks = pathlib.Path(name)
        (marks / "tell").write_text(TELL)
        # The survivors' output goes into files, since torchrun ends them and does not wait for what they print.
        job = torchrun(3, "--redirects", "3", "--log-dir", marks / "logs", "sh", marks / "tell", marks,
                       folder / "train_fashion_mnist", "--epochs=100", "--log-every=1")

        def texts(kind):
            return {int(file.parent.name): file.read_text(errors="replace") for file in marks.glob(f"logs/*/*/*/{kind}.log")}

        try:
            late.until(lambda: any("step" in text for text in texts("stdout").values()), LIMIT, "the first step",
                       lambda: job.poll() is None)
        except AssertionError as error:
            job.kill()
            start.expect(False, end(job), f"{error}: {texts('stderr')}")
        os.kill(int((marks / "rank-1").read_text()), signal.SIGKILL)
        done = end(job)
        start.expect(done.returncode != 0, done, "torchrun noticed no death")
        said = texts("stderr")
        for rank in (0, 2):
            start.expect("rank 1 " in said[rank] and "died" in said[rank], done, f"rank {rank} does not name rank 1: {said}")
        print(f"rank 1 killed: {said[0].strip().splitlines()[0]}")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    check_bits(folder)
    check_death(folder)


if __name__ == "__main__":
    from_pypi.enter("torch", PACKAGES)
    late.end(main)
