#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rank 0's door at a meeting point, while a job lives: who comes is told, and the job goes on.

    door.py CHECK FOLDER MPIRUN

FOLDER has the example programs. The ranks are processes of this host.
"""
import os
import pathlib
import resource
import socket
import sys
import tempfile
import time

from start import Job, by_hand, expect, late, python_paths


# A rank that trains until the file that it is given is there, and, where it is told so, opens engines beside the first.
DOOR = """
import os, sys, threading, time, ronde
done, how = sys.argv[1:]
def more(name):
    with ronde.Engine(name=name) as engine:
        engine.barrier().wait()
        print("engine", name, engine.rank, engine.size, flush=True)
engine = ronde.Engine()
for number in range(20 if how == "again" else 0):
    engine.close()
    engine = ronde.Engine()
engine.barrier().wait()
print("open", engine.rank, engine.size, flush=True)
if how == "more":
    more("one after the other")
    threads = [threading.Thread(target=more, args=(name,)) for name in (("a", "b") if engine.rank == 0 else ("b", "a"))]
    [one.start() for one in threads], [one.join() for one in threads]
if how == "child" and engine.rank == 0 and os.fork() == 0:
    os.close(0), os.close(1), os.close(2)
    time.sleep(20)
    os._exit(0)
while not os.path.exists(done):
    time.sleep(0.02)
engine.barrier().wait()
engine.close()
print("closed", flush=True)
"""


def check_job(folder, _):
    """Rank 0's door stays open while the job lives: whoever comes to a complete job is told at once, and its further
    engines meet there."""
    paths = python_paths(folder)
    with tempfile.TemporaryDirectory() as place:
        done = pathlib.Path(place) / "done"

        def line(how=""):
            return (sys.executable, "-c", DOOR, str(done), how)

        def opened(job, environments, how=""):
            ranks = [job.start(line(how), **variables) for variables in environments]
            for number, rank in enumerate(ranks):
                said = rank.stdout.readline()
                assert said == f"open {number} {len(ranks)}\n", (said, rank.stderr.read())
            return ranks

        for how in ("", "more", "again"):
            done.unlink(missing_ok=True)
            environments = by_hand(2, **paths)
            job = Job(folder)
            opened(job, environments, how)
            for variables, parts in (
                    (environments[1], ("came to a job that is complete", "among them rank 1 (host ", "RONDE_MEET")),
                    (environments[0], ("is a second rank 0 at localhost:", "RONDE_MEET")),
                    ({**environments[1], "RONDE_JOB": "another"}, ("is of job 'another'", "RONDE_JOB"))):
                for _ in range(2):
                    began = time.monotonic()
                    stranger, = Job(folder).run(line(), [variables])
                    late.at_most(time.monotonic() - began, 10, "what is told at once")
                    expect(stranger.returncode == 1 and "Traceback" in stranger.stderr, stranger, "expected an error")
                    expect(all(part in stranger.stderr for part in parts), stranger, f"expected {parts}")
            done.touch()
            for rank, one in enumerate(job.end()):
                expect(one.returncode == 0 and one.stdout.endswith("closed\n"), one, f"rank {rank} has suffered")
                names = sorted(said for said in one.stdout.splitlines() if said.startswith("engine"))
                expect(len(names) == (3 if how == "more" else 0), one, "an engine is missing")
                reasons = ("the job is complete", "it was a second rank 0", "it was a rank of another job")
                for reason in reasons:
                    expect(one.stderr.count(reason) == (2 if rank == 0 else 0), one, reason)
        # Two jobs at one point: at most the ranks of one train, maybe mixed, and the others hear what to do. (A rank
        # that comes seconds after rank 0 has failed waits for one in vain; a rank 0 that comes while the other one is
        # about to end finds the port taken.)
        for ranks in (2, 3):
            done.unlink(missing_ok=True)
            job = Job(folder)
            for variables in 2 * by_hand(ranks, **paths, RONDE_START_TIMEOUT_SECONDS=10):
                job.start(line(), **variables)
            began = time.monotonic()
            while sum(rank.poll() is None for rank in job.ranks) > ranks and time.monotonic() - began < 60:
                time.sleep(0.02)
            time.sleep(0.5)
            done.touch()
            ended = job.end()
            codes = sorted(one.returncode for one in ended)
            assert codes in (ranks * [0] + ranks * [1], 2 * ranks * [1]), codes
            for one in ended:
                told = ("give each job a meeting point of its own", "did not reach rank 0", "choose another port",
                        "took no part in meeting")
                expect(one.returncode == 0 or any(words in one.stderr for words in told), one, "it is not told")
        # A restart at the same port, while a child of the dead rank 0 lives.
        done.unlink()
        job = Job(folder)
        environments = by_hand(2, **paths)
        first, second = opened(job, environments, "child")
        first.kill()
        second.kill()
        first.wait(), second.wait()
        job.ranks = []
        opened(job, environments)
        done.touch()
        for one in job.end():
            expect(one.returncode == 0, one, "it did not start again")


def check_strangers(folder, _):
    """Whoever knocks at the door of a job that lives: garbage, half hellos, silence, 7,000 connections. The job goes on,
    and each reason is a line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    with tempfile.TemporaryDirectory() as place:
        done = pathlib.Path(place) / "done"
        job = Job(folder)
        environments = by_hand(2, **python_paths(folder))
        port = environments[0]["RONDE_MEET"].split(":")[1]
        for rank, variables in enumerate(environments):
            job.start((sys.executable, "-c", DOOR, str(done), ""), **variables)
        assert all(rank.stdout.readline().startswith("open") for rank in job.ranks)
        crowd = []

        def knock(said=b""):
            one = socket.socket(socket.AF_UNIX)
            one.connect(f"\0ronde-meet-{os.getuid()}-{port}")
            one.settimeout(20)
            if said:
                one.sendall(said)
            crowd.append(one)
            return one

        for said in (b"GET / HTTP/1.1\r\n\r\n", b"RondeM99" + bytes(32)):
            knock(said).recv(1000)
        for one in (knock(b"RondeM02"), knock()):  # half a hello, and silence
            began = time.monotonic()
            assert one.recv(1000) == b""
            late.at_most(time.monotonic() - began, 25, "a stranger's 5 s")
        for _ in range(7000):
            knock()
        third, = Job(folder).run((sys.executable, "-c", DOOR, str(done), ""), environments[1:])
        expect("came to a job that is complete" in third.stderr, third, "the door is blocked")
        done.touch()
        for rank, one in enumerate(job.end()):
            expect(one.returncode == 0 and one.stdout.endswith("closed\n"), one, f"rank {rank} has suffered")
            for reason in ("what was sent is not Ronde's protocol", "another version of Ronde", "the job is complete",
                           "no whole hello arrived within 5 s", "too many others were waiting"):
                expect(one.stderr.count(reason) in ((1, 2) if rank == 0 else (0,)), one, reason)
        for one in crowd:
            one.close()


def main():
    check, folder, _ = sys.argv[1:]
    {"job": check_job, "strangers": check_strangers}[check](folder, None)


if __name__ == "__main__":
    late.end(main)
