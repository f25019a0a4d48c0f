#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""server.py <check> <folder of the programs> <mpirun>: jobs with parameter servers, each task started as by hand."""

import re
import time

from programs import late
from server_kit import (BIN, IMAGES, LINE, SECONDS, SOON, WORK, Job, Task, is_exact, is_line, losses, number, ports, pushes,
                        ranks, run_check)


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
    is_exact(text)
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
            ([*hosts, "--job_name=worker", "--replicas=2"], 2, "--replicas is not for servers"),
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
    parts = [losses(text) for text in job.run(2, 2)]  # each of half of the samples
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


def strategies():
    """A checkpoint of servers goes on by allreduce, and back."""
    shared = ["--learning_rate", "0.005", "--batch", "1", "--logdir", str(WORK / "log"), "--momentum", "0.5"]

    def by_servers(steps):
        return Job(2, 2, *shared, "--mode", "sync", "--steps", steps).run(2, 2)[0]

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
    Job(1, 2, *flags, *logdir, "13", "--mode", "sync", program=IMAGES).run(1, 2)
    text = Task("ring", [*ranks(2), IMAGES, *flags, *logdir, "18"]).wait()
    assert "resumed at step 13 (step 3 of epoch 2)" in text, text
    assert all(abs(a - b) < 1e-5 for a, b in zip(whole[13:], losses(text), strict=True)), f"{whole}\n{text}"


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
    assert re.search(r"ps 0 at .* has received no message for 4 s, and ends", text), text


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
        text = Job(1, 2, *SOON, "--mode", mode, "--feed", "chief", chief=True).run(1, 2, chief=True)[0]
        is_line(text)
        assert number(text, "global_step") >= 1500, text
        assert sum(pushes(text)) == (3000 if mode == "sync" else 1500), text
    # Workers that are fed read no data.
    job = Job(1, 1, "--steps", "40", "--test-images", "500", "--feed", "chief", chief=True, program=IMAGES)
    text = job.run(1, 1, "--data", "/nowhere", chief=True)[0]
    assert number(text, "global_step") == 40 and number(text, "test_accuracy") > 0.3, text
    # The rates of a schedule travel too: the bits are those of one process.
    flags = ["--steps", "20", "--test-images", "100", "--schedule", "linear", "--warmup", "3"]
    fed = Job(1, 1, *flags, "--mode", "sync", "--feed", "chief", chief=True, program=IMAGES).run(1, 1, chief=True)[0]
    alone = Task("alone", [IMAGES, *flags]).wait()
    assert re.search(r"param_hash=\S+", alone).group(0) in fed, alone + fed
    # The images of a step, and of each its label, its number and how often it came before; and a pull at the beginning.
    images = 4 * 784 * 128
    assert images < number(text, "chief_bytes_per_step") < 1.3 * images, text


def recommender():
    """A store on servers learns what a store on each rank learns, and less of the table travels; also where a server is
    killed, whose rows its standby has."""
    program = f"{BIN}/recommender"
    flags = ["--steps", "3000", "--users", "20", "--items", "20", "--learning-rate", "5"]
    by_ring = Task("rows by ring", [*ranks(2), program, *flags]).wait()
    assert number(by_ring, "accuracy") > 0.8, by_ring
    few = number(Task("many rows by ring", [*ranks(2), program, "--steps", "5"]).wait(), "row_bytes_per_step")
    for standby in ("off", "on"):
        addresses = ports(4)
        hosts = ["--ps_hosts", ",".join(addresses[:2]), "--worker_hosts", ",".join(addresses[2:]), "--standby", standby]
        servers = [Task(f"ps{i}", [program, *hosts, "--job_name=ps", "--task_index", i]) for i in range(2)]
        workers = Task("rows by server", [*ranks(2), program, *flags, *hosts, "--job_name", "worker"])
        if standby == "on":
            servers[1].wait_for("worker 1 is there")
            time.sleep(0.3)  # some of the steps
            servers.pop().kill()
        by_server = workers.wait()
        for one in servers:
            one.wait()
        assert number(by_server, "loss") == number(by_ring, "loss"), by_server + by_ring
        assert number(by_server, "row_bytes_per_step") < few / 2, f"{by_server}{few}"


def named_workers():
    """Workers with a loop each, and workers that the chief gives each step to by name."""
    for chief in (False, True):
        job = Job(1, 2, "--steps", "200", chief=chief, program=f"{BIN}/named_workers")
        text = job.run(1, 2, chief=chief)[0]
        is_line(text)
        assert ("way=by_name" in text) == chief, text
        for i in range(2 if chief else 0):
            assert f"worker {i} says: worker {i}\n" in text, text


if __name__ == "__main__":
    late.end(lambda: run_check(globals()))
