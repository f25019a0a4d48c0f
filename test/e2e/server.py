#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""server.py <check> <folder of the programs> <mpirun>: jobs with parameter servers, each task started as by hand."""

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
from server_kit import BIN, IMAGES, LINE, SECONDS, SOON, STARTED, WORK, Job, Task, is_line, losses, number, ports, ranks, steps_of


def by_hand():
    """The chief and an evaluator first, then the server, which ends when the chief closes the job, then a worker."""
    job = Job(1, 2, *SOON)
    workers, evaluator = [job.start("worker", 0)], job.start("evaluator", 0)
    server = job.start("ps", 0)
    evaluator.wait_for(r"step \d+: .*, weight ")
    workers.append(job.start("worker", 1))  # for which the chief waits
    text = workers[0].wait()
    assert re.search(r"^step 15\d\d: .*, weight ", evaluator.wait(), re.MULTILINE), evaluator.text()
    workers[1].wait()
    server.wait()
    is_line(text)
    assert "line/weight (1 x 1) on ps 0" in text, text
    pushes = [int(one) for one in re.search(r"pushes=(\d+),(\d+)", text).groups()]
    assert sum(pushes) == number(text, "global_step"), text
    assert re.search(r"step \d+: loss [.e0-9-]+, weight [.0-9]+, bias [.0-9]+", text), text


def guide():
    """A line as the guides start it: one sample a step at a rate of 3e-5, and a supervisor's logdir."""
    hosts = ports(3)
    flags = [f"--ps_hosts={hosts[0]}", f"--worker_hosts={hosts[1]},{hosts[2]}", "--steps_to_validate=30000"]
    server = Task("ps", [LINE, *flags, "--job_name=ps", "--task_index=0"])
    other = Task("worker1", [LINE, *flags, "--job_name=worker", "--task_index=1"])
    text = Task("worker0", [LINE, *flags, "--job_name=worker", "--task_index=0", "--logdir", WORK / "log"]).wait(seconds=4 * SECONDS)
    is_line(text)
    assert number(text, "global_step") >= 150000, text
    for task in (other, server):
        task.wait()
        assert task is server or re.search(r"^step \d+: loss .*, weight .*, bias ", task.text(), re.MULTILINE), task.text()


def wrong_flags():
    """A line for each, without waiting for anybody."""
    hosts = ["--ps_hosts=a:1", "--worker_hosts=b:1"]
    walk = [(["--strategy", "server"], 2, "which task is this? Use --ps_hosts"),
            ([*hosts, "--job_name=boss"], 2, "--job-name boss is not valid: use one of: ps worker"),
            ([*hosts, "--job_name=ps", "--task_index=x"], 2, "--task-index x is not valid: use a whole number"),
            ([*hosts, "--job_name=ps", "--job-name", "ps"], 2, "--job-name"),
            ([*hosts, "--job_name=ps", "--task_index=1"], 78, "--ps_hosts names 1: use an index from 0 to 0"),
            (hosts, 78, "--job_name is missing"),
            (["--ps_hosts=a:1", "--job_name=ps"], 78, "--worker_hosts names no worker"),
            (["--mode", "stale=-1"], 2, "--mode stale=-1 is not valid: use one of: sync async stale=k"),
            (["--mode", "sync"], 2, "--mode is for training on servers"),
            ([*hosts, "--job_name=worker", "--strategy=mirrored"], 2, "--strategy mirrored has no servers"),
            ([*hosts, "--job_name=worker", "--strategy=onedevice"], 2, "--strategy onedevice has no servers"),
            ([*hosts, "--job_name=worker", "--feed=chief"], 78, "name it in --chief_hosts"),
            ([*hosts, "--job_name=worker", "--mode=sync", "--backup_workers=1"], 78, "one must be left to wait for"),
            ([*hosts, "--job_name=worker", "--backup_workers=1"], 78, "--backup_workers is for --mode sync"),
            ([*hosts, "--job_name=worker", "--mode=sync", "--scale_by_staleness=on"], 78, "--scale_by_staleness is for --mode async"),
            (["--servers=1"], 78, "--servers is 1 in a job of 1 ranks: start more ranks")]
    for flags, code, line in walk:
        text = Task("wrong", [LINE, *flags]).wait(code)
        assert line in text and text.count("\n") == 1, f"{flags}: {text}"
    text = Task("help", [IMAGES, "--help"]).wait()
    for flag in ("--ps-hosts", "--job-name", "--servers", "--mode VALUE (=async)", "--standby", "--feed"):
        assert flag in text, f"{flag} is not in {text}"


def sync_is_allreduce():
    """The same job over two workers with servers and over two ranks without: the losses of 100 steps."""
    flags = ["--steps", "100", "--log-every", "1", "--test-images", "500"]
    job = Job(2, 2, *flags, "--mode", "stale=0", "--partition", "fixed=2", program=IMAGES)
    tasks = [job.start("ps", 0), job.start("ps", 1), job.start("worker", 1), job.start("worker", 0)]
    parts = [losses(task.wait()) for task in tasks[2:]]  # each of half of the samples
    for task in tasks:
        task.wait()
    by_servers = [(a + b) / 2 for a, b in zip(*parts)]
    ring = Task("ring", [*ranks(2), IMAGES, *flags])
    by_ring = losses(ring.wait())
    assert len(by_ring) == len(by_servers) == 100, (len(by_ring), len(by_servers))
    far = max(abs(a - b) for a, b in zip(by_ring, by_servers))
    assert far < 1e-6, far
    print(f"furthest apart: {far}")


def mpirun():
    """The last rank of a job serves."""
    text = Task("mpirun", [*ranks(3), LINE, "--servers", "1", *SOON]).wait()
    is_line(text)


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
    pushes = [int(one) for one in re.search(r"pushes=(\d+),(\d+)", text).groups()]
    assert sum(pushes) == number(text, "global_step"), text
    assert min(pushes) > 0, text


def kills():
    """Workers are killed 20 times at random, and started again; between them a server, which has a standby, and now and
    then anybody stands still. The counts are exact, and the model learns."""
    draw = random.Random(1)
    job = Job(2, 3, "--epochs", "100", "--steps", "12000", "--global-batch", "192", "--learning_rate", "0.1", "--momentum",
              "0", "--log-every", "25", "--slow_ms", "1", "--worker_timeout", "1", "--standby", "on", program=IMAGES)
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
    pushes = [int(one) for one in re.search(r"pushes=(\d+),(\d+),(\d+)", text).groups()]
    assert sum(pushes) == number(text, "global_step") >= 12000, text
    assert min(pushes) > 0, text
    assert number(text, "test_accuracy") >= 0.85, text
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
    pushes = [int(one) for one in re.search(r"pushes=(\d+),(\d+)", text).groups()]
    assert sum(pushes) == number(text, "global_step") >= 1500, text


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
    pushes = [int(one) for one in re.search(r"pushes=(\d+),(\d+)", text).groups()]
    assert sum(pushes) == number(text, "global_step") >= 1000, text


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
    assert re.search(r"ps 0 goes on from the checkpoint of step \d+: what it has learned since is lost", text), text


def strategies():
    """A checkpoint of servers goes on by allreduce, and back."""
    shared = ["--learning_rate", "0.005", "--batch", "1", "--logdir", str(WORK / "log"), "--momentum", "0.5"]

    def by_servers(steps):
        job = Job(2, 2, *shared, "--mode", "sync", "--steps", steps)
        tasks = [job.start("ps", 0), job.start("ps", 1), job.start("worker", 1)]
        text = job.start("worker", 0).wait()
        for task in tasks:
            task.wait()
        return text

    assert number(by_servers(200), "global_step") == 200
    text = Task("ring", [*ranks(2), LINE, *shared, "--steps", "500"]).wait()
    assert "resumed at step 200 " in text and number(text, "steps") == 300, text
    text = by_servers(1500)
    assert "resumed at step 500 " in text and number(text, "global_step") == 1500, text
    is_line(text)


def epochs():
    """A checkpoint of servers says the epoch and its step: the ranks that go on take the steps of a whole training."""
    flags = ["--global-batch", "6000", "--test-images", "500", "--log-every", "1"]
    whole = losses(Task("whole", [*ranks(2), IMAGES, *flags, "--steps", "18"]).wait())
    logdir = ["--logdir", str(WORK / "log"), "--steps"]
    job = Job(1, 2, *flags, *logdir, "13", "--mode", "sync", program=IMAGES)
    tasks = [job.start("ps", 0), job.start("worker", 1), job.start("worker", 0)]
    for task in tasks:
        task.wait()
    text = Task("ring", [*ranks(2), IMAGES, *flags, *logdir, "18"]).wait()
    assert "resumed at step 13 (step 3 of epoch 2)" in text, text
    assert all(abs(a - b) < 1e-5 for a, b in zip(whole[13:], losses(text), strict=True)), f"{whole}\n{text}"


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
        server.wait_for(r"ps 0: what came from .* is no message of this job \(.*\): it is ignored")
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
    pushes = [int(one) for one in re.search(r"pushes=(\d+),(\d+)", text).groups()]
    assert sum(pushes) == number(text, "global_step"), text


def secret():
    """With a secret a stranger without it is not heard; off this host none is refused."""
    job = Job(1, 2, *SOON, "--slow_ms", "1")
    keys = {"RONDE_JOB_SECRET": "sixteen bytes or more"}
    tasks = [job.start("ps", 0, environment=keys), job.start("worker", 1, environment=keys)]
    chief = job.start("worker", 0, environment=keys)
    chief.wait_for(r"step [1-9]\d*: ")
    stranger = job.start("worker", 1, "--deadline", "3", environment={"RONDE_JOB_SECRET": "another of sixteen"})
    text = stranger.wait(1)
    assert re.search(r"ps 0 at .* does not answer, and worker 1 has waited for 3 s: start it", text), text
    is_line(chief.wait())
    for task in tasks:
        task.wait()
    assert "ps 0: a stranger has connected that does not speak as a task of this job, or lacks its secret" in \
        tasks[0].text(), tasks[0].text()
    text = Task("far", [LINE, "--ps_hosts=10.9.8.7:2222", "--worker_hosts=10.9.8.6:2222", "--job_name=ps"]).wait(78)
    assert "export RONDE_JOB_SECRET=$(head -c 32 /dev/urandom | base64)" in text, text


def wrong():
    """One line for each, which names both sides."""
    job = Job(1, 1, *SOON, "--deadline", "4")
    server = job.start("ps", 0)
    server.wait_for("ps 0 serves at")
    text = job.start("ps", 0).wait(78)
    assert "another process has this address" in text and job.servers[0] in text, text
    text = Task("other", [LINE, "--ps_hosts", job.servers[0], "--worker_hosts=127.0.0.1:1,127.0.0.1:2",
                          "--job_name=worker"]).wait(78)
    assert re.search(r"worker 0 was started with .*127.0.0.1:2.*, and ps 0 with .*: start all tasks with the same "
                     "lists", text), text
    text = server.wait(1)
    assert re.search(r"ps 0 at .* has heard nobody for 4 s, and ends", text), text


def lost():
    """A worker that is lost is named; without the chief nobody ends as if all were kept."""
    job = Job(1, 2, *SOON, "--slow_ms", "3", "--worker_timeout", "1", "--deadline", "4")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    other.kill()
    text = chief.wait()
    assert "worker 1 was lost before it was done: what it had still to learn is not learned" in text, text
    assert re.search(r"ps 0: worker 1 has not been heard for 1 s: nobody waits", server.wait()), server.text()
    # Without any worker the training is not over.
    job = Job(1, 1, *SOON, "--slow_ms", "3", "--worker_timeout", "1", "--logdir", WORK / "lost", chief=True)
    server, chief, other = job.start("ps", 0), job.start("chief", 0), job.start("worker", 0)
    server.wait_for("worker 0 is there")
    other.kill()
    text = chief.wait(75)
    assert "all workers are gone without a word: start all tasks again to go on" in text, text
    server.wait()
    job = Job(1, 2, *SOON, "--slow_ms", "3", "--worker_timeout", "1", "--deadline", "4")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    chief.kill()
    text = other.wait(1)
    assert "the chief has not been heard for 4 s: nobody has kept the last state" in text, text
    assert re.search(r"ps 0: worker 0, the chief, has not been heard for 1 s: .*, and nothing is saved", server.wait(1)), server.text()


def twice():
    """A second worker 0 is told of the first."""
    job = Job(1, 2, *SOON, "--slow_ms", "15")
    server, chief, other = job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)
    chief.wait_for(r"step [1-9]\d*: ")
    text = job.start("worker", 1).wait(78)
    assert "worker 1 runs twice: ps 0 hears another one, which was started before" in text, text
    is_line(chief.wait())
    other.wait()
    server.wait()


def feed():
    """The chief sends the batches, in async and in sync."""
    for mode in ("async", "sync"):
        job = Job(1, 2, *SOON, "--mode", mode, "--feed", "chief", chief=True)
        tasks = [job.start("ps", 0), job.start("worker", 0), job.start("worker", 1)]
        text = job.start("chief", 0).wait()
        for task in tasks:
            task.wait()
        is_line(text)
        assert number(text, "global_step") >= 1500, text
        pushes = [int(one) for one in re.search(r"pushes=(\d+),(\d+)", text).groups()]
        assert sum(pushes) == (3000 if mode == "sync" else 1500), text
    # Workers that are fed read no data.
    job = Job(1, 1, "--steps", "40", "--test-images", "500", "--feed", "chief", chief=True, program=IMAGES)
    tasks = [job.start("ps", 0), job.start("worker", 0, "--data", "/nowhere")]
    text = job.start("chief", 0).wait()
    for task in tasks:
        task.wait()
    assert number(text, "global_step") == 40 and number(text, "test_accuracy") > 0.3, text
    # The rates of a schedule travel too: the bits are those of one process.
    flags = ["--steps", "20", "--test-images", "100", "--schedule", "linear", "--warmup", "3"]
    job = Job(1, 1, *flags, "--mode", "sync", "--feed", "chief", chief=True, program=IMAGES)
    tasks = [job.start("ps", 0), job.start("worker", 0)]
    fed = job.start("chief", 0).wait()
    for task in tasks:
        task.wait()
    alone = Task("alone", [IMAGES, *flags]).wait()
    assert re.search(r"param_hash=\S+", alone).group(0) in fed, alone + fed
    # The images of a step, and of each its label, its number and how often it came before; and a pull at the beginning.
    images = 4 * 784 * 128
    assert images < number(text, "chief_bytes_per_step") < 1.3 * images, text


def recommender():
    """Rows by server and dense layers by ring learn what all by ring learns, and less of the table travels."""
    program = f"{BIN}/recommender"
    ring = [*ranks(2), program, "--steps", "400"]
    addresses = ports(4)
    hosts = ["--ps_hosts", ",".join(addresses[:2]), "--worker_hosts", ",".join(addresses[2:])]
    servers = [Task(f"ps{i}", [program, *hosts, "--job_name=ps", "--task_index", i]) for i in range(2)]
    by_server = Task("rows by server", [*ring, *hosts, "--job_name", "worker"]).wait()
    for one in servers:
        one.wait()
    by_ring = Task("rows by ring", [*ring, "--rows", "ring"]).wait()
    assert abs(number(by_server, "loss") - number(by_ring, "loss")) < 1e-3, by_server + by_ring
    assert number(by_server, "row_bytes_per_step") < number(by_ring, "row_bytes_per_step") / 2, by_server + by_ring


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
    chief.wait()
    server.wait()
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


def main():
    try:
        globals()[sys.argv[1]]()
    except BaseException:
        for one in STARTED:
            print(f"--- {one.name}, {one.process.poll()}:\n{one.text()[-3000:]}")
        raise
    finally:
        for one in STARTED:
            if one.process.poll() is None:
                one.process.kill()


if __name__ == "__main__":
    late.end(main)
