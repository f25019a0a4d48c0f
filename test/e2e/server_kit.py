# SPDX-License-Identifier: Apache-2.0
"""What server.py starts jobs with: tasks with parameter servers, their addresses, and what they print."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

from programs import late

BIN, MPIRUN = sys.argv[2:4]
LINE = f"{BIN}/linear_regression"
IMAGES = f"{BIN}/train_fashion_mnist"
SECONDS = 90  # until whatever is waited for must have come
WORK = pathlib.Path(tempfile.mkdtemp(prefix="ronde-server-"))
STARTED = []


class Task:
    """A process whose output goes to a file."""

    def __init__(self, name, arguments, environment=None):
        self.log = WORK / f"{name}.{len(STARTED)}"
        self.name = name
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([str(one) for one in arguments], stdout=log, stderr=log,
                                            env={**os.environ, **(environment or {})})
        STARTED.append(self)

    def text(self):
        return self.log.read_text(encoding="utf-8")

    def wait(self, code=0, seconds=SECONDS):
        late.finish(self.process, seconds, f"the end of {self.name}")
        assert self.process.returncode == code, f"{self.name} ended with {self.process.returncode}:\n{self.text()}"
        return self.text()

    def wait_until(self, holds, what):
        return late.until(lambda: holds(self.text()), SECONDS, f"{self.name} to say {what}",
                          lambda: self.process.poll() is None)

    def wait_for(self, pattern):
        return self.wait_until(lambda text: re.search(pattern, text), pattern)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)


# A loopback address of this test's own: who connects to another one has a port of 127.0.0.1, so that nobody can take
# a port between here and the task that listens there.
HOST = f"127.{1 + (os.getpid() >> 16) % 254}.{(os.getpid() >> 8) % 256}.{os.getpid() % 256}"
PORTS = iter(range(20000, 30000))


def ports(count):
    """Addresses that nobody else has."""
    return [f"{HOST}:{next(PORTS)}" for _ in range(count)]


class Job:
    """Servers and workers of a program, which are started in any order."""

    def __init__(self, servers, workers, *flags, chief=False, program=LINE):
        self.program = program
        addresses = ports(servers + workers + 1)
        self.servers = addresses[:servers]
        self.hosts = ["--ps_hosts", ",".join(self.servers), "--worker_hosts=" + ",".join(addresses[servers:-1])]
        if chief:
            self.hosts += ["--chief-hosts", addresses[-1]]
        self.flags = list(flags)

    def run(self, servers, workers, *more, chief=False):
        """All tasks from start to end; what the workers, or with a chief that one, have printed."""
        serving = [self.start("ps", i) for i in range(servers)]
        working = [self.start("worker", i, *more) for i in range(workers)]
        texts = [self.start("chief", 0).wait()] if chief else []
        texts += [task.wait() for task in working]
        for task in serving:
            task.wait()
        return texts

    def start(self, name, index, *more, environment=None):
        arguments = [self.program, *self.hosts, "--job_name", name, f"--task_index={index}", *self.flags, *more]
        return Task(f"{name}{index}", arguments, environment)


def number(text, name):
    return float(re.search(rf"\b{name}=([-+.e0-9]+)", text)[1])


def pushes(text):
    """Of each worker; their sum is what the servers have applied, except in sync."""
    return [int(one) for one in re.search(r"pushes=([\d,]+)", text)[1].split(",")]


def is_exact(text):
    assert sum(pushes(text)) == number(text, "global_step"), text


def is_line(text):
    assert abs(number(text, "weight") - 2) < 0.05 and abs(number(text, "bias") - 10) < 0.05, text


SOON = ["--steps", "1500", "--learning_rate", "0.01", "--batch", "4", "--steps_to_validate", "200"]


def steps_of(text):
    return [int(one) for one in re.findall(r"^step (\d+): ", text, re.MULTILINE)]


def losses(text):
    return [float(one) for one in re.findall(r"^step \d+[,:].*? loss:? ([^,\n]+)", text, re.MULTILINE)]


def ranks(count):
    """How so many are started."""
    return [MPIRUN, "--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "-n", str(count)]


def run_check(checks):
    """The check that the command line names, of those that a script has."""
    try:
        checks[sys.argv[1]]()
    except BaseException:
        for one in STARTED:
            print(f"--- {one.name}, {one.process.poll()}:\n{one.text()[-3000:]}")
        raise
    finally:
        for one in STARTED:
            if one.process.poll() is None:
                one.process.kill()
