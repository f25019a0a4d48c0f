#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs over two hosts whose line is down for 15 s: they go on, and every sum is right to the last bit.
One is in the middle of a large allreduce then, so that its control link is idle; the other in a stream of
small ones. Both run at the default of RONDE_LINK_TIMEOUT_SECONDS, and at the same time.

usage: gap.py WORKER [LINK_TIMEOUT]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

RUN = pathlib.Path(__file__).resolve().parent / "run"
GAP = 15
# MPI's connections try again less and less often: after a gap of 15 s it may take them as long again.
LIMIT = 120
WORDS = {"large": ("bytes=4194304", "iterations=8", "at=4", "after=0.01"),
         "small": ("bytes=8", "iterations=3000", "at=300", "after=0")}


class Job:
    def __init__(self, worker, moment, settings):
        self.moment = moment
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ronde_gap_"))
        command = [sys.executable, "-B", str(RUN), "--hosts", "2", "--ranks", "1",
                   "--cut", f"2:{self.folder}/struck:{GAP}"]
        for name in settings:
            command += ["--mpirun=-x", f"--mpirun={name}"]
        command += ["--", worker, f"folder={self.folder}", "victim=1", "signal=0", *WORDS[moment]]
        self.began = time.monotonic()
        self.log = open(self.folder / "log", "w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT,
                                        env=dict(os.environ, **settings))

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def expect(self, condition, what):
        if condition:
            return
        for file in sorted(self.folder.glob("rank-*.verdict")):
            print(f"--- {file.name}\n{file.read_text(errors='replace')}", end="")
        sys.exit(f"{self.moment}: {what}\n{self.output()[-6000:]}")

    def check(self):
        try:
            late.finish(self.process, LIMIT, f"the job in {self.moment} allreduces", self.began)
        except AssertionError as error:
            self.expect(False, str(error))
        code = self.process.returncode
        if code == late.SKIPPED:
            print(self.output().strip())
            sys.exit(late.SKIPPED)
        for rank in (0, 1):
            file = self.folder / f"rank-{rank}.verdict"
            self.expect(file.exists(), f"rank {rank} left no verdict")
            verdict = dict(line.split("=", 1) for line in file.read_text().splitlines())
            self.expect(verdict["status"] == "done", f"rank {rank} failed: {verdict.get('text')}")
            longest = int(verdict["longest_ns"]) / 1e9
            self.expect(longest > GAP - 1, f"the line was down, and no step of rank {rank} took longer than {longest:.1f} s")
        self.expect(code == 0, f"exit code {code}")
        print(f"{self.moment}: the line was down for {GAP} s, the longest step took {longest:.1f} s, all sums were right",
              flush=True)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    settings = {"RONDE_LINK_TIMEOUT_SECONDS": sys.argv[2]} if len(sys.argv) > 2 else {}
    jobs = [Job(sys.argv[1], moment, settings) for moment in WORDS]
    try:
        for job in jobs:
            job.check()
    finally:
        for job in jobs:
            job.process.kill()


if __name__ == "__main__":
    late.end(main)
