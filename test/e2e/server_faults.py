#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""server_faults.py <check> <folder of the programs> <mpirun>: jobs with parameter servers whose tasks are killed, stand still,
are told to stop, or hear what is no message of theirs."""

import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import zmtp
from programs import late
from server_kit import BIN, IMAGES, SECONDS, SOON, WORK, Job, Task, is_exact, is_line, number, pushes, steps_of, run_check


def worker_kill():
    """A worker is killed, and started again; the counts stay exact."""
    job = Job(1, 2, *SOON, "--slow_ms", "3", "--worker_timeout", "1")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    other.kill()
    other.process.wait()
    again = job.start("worker", 1)
    text = chief.wait()
    again.wait()
    assert re.search(r"^pushed [1-9]", again.text(), re.MULTILINE), again.text()
    server.wait()
    is_line(text)
    is_exact(text)
    assert min(pushes(text)) > 0, text


def kills():
    """Workers are killed 20 times at random, and started again; between them a server, which has a standby, and now and
    then anybody stands still. The counts are exact, and the model learns: the rate falls to almost
    nothing, so that the last pushes decide nothing."""
    draw = random.Random(1)
    job = Job(2, 3, "--epochs", "13", "--steps", "12000", "--global-batch", "192", "--learning_rate", "0.1", "--momentum",
              "0", "--log-every", "25", "--slow_ms", "1", "--worker_timeout", "1", "--standby", "on", "--schedule", "linear", program=IMAGES)
    servers = [job.start("ps", 0), job.start("ps", 1)]
    workers = {index: job.start("worker", index) for index in (1, 2)}
    chief = job.start("worker", 0)
    for i, step in enumerate(sorted(draw.sample(range(250, 11000), 20))):
        chief.wait_until(lambda text, step=step: steps_of(text)[-1:] > [step], f"that it is beyond step {step}")
        if i % 3 == 2:
            stands_still = draw.choice([chief, *workers.values(), *servers])
            stands_still.kill(signal.SIGSTOP)
            time.sleep(draw.uniform(0.1, 1.5))
            stands_still.kill(signal.SIGCONT)
        index = draw.choice(list(workers))
        workers[index].kill()
        workers[index].process.wait()
        workers[index] = job.start("worker", index)
        if i == 10:
            dead = draw.choice(servers)
            dead.kill()
            servers.remove(dead)
    text = chief.wait()
    for task in (*workers.values(), *servers):
        task.wait()
    is_exact(text)
    assert number(text, "global_step") >= 12000, text
    assert min(pushes(text)) > 0, text
    assert number(text, "test_accuracy") >= 0.87, text
    print(text.splitlines()[-1])


def server_kill():
    """A server is killed, and the next one has all that it had."""
    job = Job(2, 2, *SOON, "--slow_ms", "3", "--standby", "on", "--server_timeout", "3")
    servers = [job.start("ps", 0), job.start("ps", 1)]
    chief, other = job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    servers[0].kill()
    text = chief.wait()
    other.wait()
    servers[1].wait()
    is_line(text)
    is_exact(text)
    assert number(text, "global_step") >= 1500, text


def server_stop():
    """A server hangs, with pushes half sent to it: the next one has all that it had, and nobody waits for what is stuck."""
    job = Job(2, 2, "--epochs", "100", "--steps", "1000", "--global-batch", "128", "--learning_rate", "0.1", "--momentum",
              "0", "--log-every", "25", "--slow_ms", "3", "--standby", "on", "--server_timeout", "2", "--deadline", "10",
              program=IMAGES)
    names = [f"ipc://@ronde-stop-{os.getpid()}-{i}" for i in range(4)]  # whose sockets hold less than a push
    job.hosts = ["--ps_hosts", ",".join(names[:2]), "--worker_hosts", ",".join(names[2:])]
    servers = [job.start("ps", 0), job.start("ps", 1)]
    chief, other = job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d\d: ")
    servers[0].kill(signal.SIGSTOP)
    text = chief.wait()
    other.wait()
    servers[1].wait()
    servers[0].kill()
    is_exact(text)
    assert number(text, "global_step") >= 1000, text


def restart():
    """Without a standby the workers wait until a killed server is there again, with the last checkpoint."""
    job = Job(1, 2, *SOON, "--slow_ms", "3", "--logdir", WORK / "log", "--save_steps", "200")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [6-9]\d\d: ")
    server.kill()
    chief.wait_for(r"worker 0 waits for ps 0 at 127\.[.\d]+:\d+, which does not answer, for at most 60 s")
    server = job.start("ps", 0)
    text = chief.wait()
    other.wait()
    server.wait()
    is_line(text)
    assert re.search(r"ps 0 goes on from the checkpoint of step \d+: its later updates are lost", text), text


def memory_of(process):
    """Its resident bytes."""
    return int(pathlib.Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1]) * 4096


def hostile():
    """Bytes that are no messages, while a training goes on; clients that come and go; a message's head and no more."""
    job = Job(1, 2, *SOON, "--slow_ms", "2")
    server, chief = job.start("ps", 0), job.start("worker", 0)
    chief.wait_for(r"step [1-9]\d*: ")
    address = job.servers[0]
    folder = os.stat(f"/tmp/ronde-{os.geteuid()}")
    assert folder.st_mode & 0o777 == 0o700 and folder.st_uid == os.geteuid(), folder
    with socket.socket() as stranger:
        host, port = address.split(":")
        assert stranger.connect_ex((host, int(port))) != 0, "a port is open to all users"
    if os.geteuid() == 0:  # who may try as another user
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('/tmp/ronde-0/{address}')"
        tried = subprocess.run([sys.executable, "-c", code], user=65534, stderr=subprocess.PIPE, text=True, check=False)
        assert "PermissionError" in tried.stderr, tried
    for garbage in (b"GET / HTTP/1.1\r\n\r\n" * 20, bytes(range(256)), b"\xff" * 4096):
        with zmtp.meet(address, SECONDS) as stranger:
            stranger.sendall(garbage)
    with zmtp.connect(address, b"w1.5", SECONDS) as stranger:
        stranger.sendall(zmtp.frames_of([b"x"]))
        stranger.sendall(zmtp.frames_of([b"RPS1" + b"\xff" * 112, b"", b"", b"1234"]))
        stranger.sendall(zmtp.frames_of([b"y" * 300] * 40))
        header = b"RPS1" + bytes([3, 1, 1, 0]) + struct.pack("<IIQQ", 1, 0, 5, 0)
        header += bytes(116 - len(header))
        stranger.sendall(zmtp.message_of([header, b"", b"", b""]))  # a push of worker 1, which it is not
        # A sign of life of worker 1, in whose view all servers are dead.
        header = b"RPS1" + bytes([10, 1, 1, 0]) + struct.pack("<IIQQIQQddQQ", 1, 0, 5, 0, 0, 0, 0, 0, 0, 1 << 62, 2**64 - 1)
        stranger.sendall(zmtp.message_of([header + bytes(116 - len(header)), b"", b"", b""]))
        server.wait_for(r"ps 0: bytes of .* are no message of this job \(.*\): they are ignored")
        # Pieces without an end: the server keeps none of them, as this one has not said hello.
        resident = memory_of(server.process.pid)
        for i in range(200):
            stranger.sendall(zmtp.frames_of([struct.pack("<QII", 7, i, 1 << 16), bytes(1 << 20)]))
        assert memory_of(server.process.pid) - resident < 64 << 20, (resident, memory_of(server.process.pid))
        server.wait_for(r"\(more bytes than it may send\)")
        # And the announcement of a frame of 2^62 bytes.
        stranger.sendall(bytes([3]) + struct.pack(">Q", 1 << 62))
    for i in range(200):
        zmtp.connect(address, f"w0.{i}".encode(), SECONDS).close()
    other = job.start("worker", 1)  # the chief waits for it, so that the server was there for all of them
    text = chief.wait()
    other.wait()
    server.wait()
    is_line(text)
    is_exact(text)


def lost():
    """A worker that is lost is named; without the chief nobody ends as if all were kept."""
    job = Job(1, 2, *SOON, "--slow_ms", "3", "--worker_timeout", "1", "--deadline", "4")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    other.kill()
    text = chief.wait()
    assert "worker 1 was lost before it was done: its remaining samples are not learned" in text, text
    assert re.search(r"ps 0: worker 1 has not been heard for 1 s: the others go on", server.wait()), server.text()
    # Without any worker the training is not over.
    job = Job(1, 1, *SOON, "--slow_ms", "3", "--worker_timeout", "1", "--logdir", WORK / "lost", chief=True)
    server, chief, other = job.start("ps", 0), job.start("chief", 0), job.start("worker", 0)
    server.wait_for("worker 0 is there")
    other.kill()
    text = chief.wait(75)
    assert "all workers are gone without a goodbye: start all tasks again to go on" in text, text
    server.wait()
    job = Job(1, 2, *SOON, "--slow_ms", "3", "--worker_timeout", "1", "--deadline", "4")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    chief.kill()
    text = other.wait(1)
    assert "the chief has not been heard for 4 s: the last state may be lost" in text, text
    assert re.search(r"ps 0: worker 0, the chief, has not been heard for 1 s: .*, and nothing is saved", server.wait(1)), server.text()


def stopped():
    """SIGSTOP of a worker slows nobody in async: the others' steps go on while it is stopped."""
    # Gone later than the test lasts, so that the chief waits for the stopped one in the end.
    job = Job(1, 2, *SOON[:-1], "100", "--slow_ms", "1", "--worker_timeout", str(late.PATIENCE * SECONDS))
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    other.kill(signal.SIGSTOP)
    chief.wait_for(r"step 1[34]\d\d: ")
    other.kill(signal.SIGCONT)
    is_line(chief.wait())
    other.wait()
    server.wait()


def late_one():
    """A worker that stands still while the job is closed ends well once it goes on: it is told."""
    job = Job(1, 2, *SOON, "--slow_ms", "1", "--worker_timeout", "1", "--deadline", "5")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    other.kill(signal.SIGSTOP)
    stood = time.monotonic()
    chief.wait()
    server.wait()
    time.sleep(max(0.0, stood + 7 - time.monotonic()))  # longer than its deadline, which does not count meanwhile
    other.kill(signal.SIGCONT)
    text = other.wait()
    assert "the chief has closed the job, while worker 1 was not heard: it ends" in text, text


def terminated():
    """SIGTERM to the chief or to a worker saves the state and ends every task with 75; started again, sync has the bits."""
    flags = ["--steps", "60", "--test-images", "100", "--log-every", "1", "--mode", "sync"]

    # A launcher tells all processes, also those that serve.
    job = Task("all", [f"{BIN}/ronderun", "-n", "3", IMAGES, "--servers", "1", *flags, "--slow_ms", "20",
                       "--logdir", WORK / "all"])
    job.wait_for(r"step [1-9]\d*: ")
    job.kill(signal.SIGTERM)
    assert "stopped after step" in job.wait(75), job.text()

    def run(*more, code=0, hit=None):
        job = Job(2, 2, *flags, *more, program=IMAGES)
        servers = [job.start("ps", i) for i in range(2)]
        workers = [job.start("worker", i) for i in range(2)]
        if hit is not None:
            workers[0].wait_for(r"step [1-9]\d*: ")
            workers[hit].kill(signal.SIGTERM)
        texts = [task.wait(code) for task in workers]
        for one in servers:
            one.wait()
        return texts[0]
    whole = re.search(r"param_hash=\w+", run()).group(0)
    for hit in range(2):
        log = WORK / f"terminated{hit}"
        run("--logdir", log, "--slow_ms", "20", code=75, hit=hit)
        text = run("--logdir", log)
        assert whole in text, (whole, text)


def chief_error():
    """A chief that ends with an error says so to all tasks, which end at once, with its exit code: at its start, and at its end."""
    for flags, code, line in ((["--logdir", "/proc/nowhere"], 1, "/proc/nowhere"),
                              (["--plot", "/nowhere/loss.svg"], 1, "--plot /nowhere/loss.svg: cannot be written")):
        job = Job(2, 2, "--steps", "20", "--test-images", "100", "--standby", "on", program=IMAGES)
        servers = [job.start("ps", i) for i in range(2)]
        chief, other = job.start("worker", 0, *flags), job.start("worker", 1)
        assert line in chief.wait(code), chief.text()
        for task in (other, *servers):
            assert f"{task.name[:-1]} {task.name[-1]} ends: the chief has ended with an error: " in task.wait(code), task.text()
            assert line in task.text(), task.text()


def evaluator():
    """SIGTERM to the evaluator ends it with 75 and a line, and the training goes on."""
    job = Job(1, 1, *SOON, "--slow_ms", "2")
    server, chief, evaluates = job.start("ps", 0), job.start("worker", 0), job.start("evaluator", 0)
    evaluates.wait_for(r"step \d+: ")
    evaluates.kill(signal.SIGTERM)
    assert "the evaluator was told to stop, and ends: the training goes on" in evaluates.wait(75), evaluates.text()
    is_line(chief.wait())
    assert "evaluator" not in chief.text(), chief.text()
    server.wait()


if __name__ == "__main__":
    late.end(lambda: run_check(globals()))
