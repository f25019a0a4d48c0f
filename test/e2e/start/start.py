#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that nobody's mpirun has started: by hand, with torchrun's variables, TF_CONFIG and Slurm's.

    start.py CHECK FOLDER MPIRUN

FOLDER has the example programs. The ranks are processes of this host.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from programs import expect, late, unpacked  # noqa: E402

LIMIT = 120  # seconds
PAGE = (pathlib.Path(__file__).resolve().parents[3] / "launcher" / "CLUSTER.md").read_text(encoding="utf-8")
PORTS = (10000 + (os.getpid() * 37 + i) % 20000 for i in range(20000))
MARKS = ("OMPI_", "PMI", "SLURM_", "WORLD_SIZE", "RANK", "LOCAL_", "MASTER_", "TORCHELASTIC_", "TF_CONFIG", "RONDE_")
# A few steps of the default training; the same under every launcher.
TRAIN = ("train_fashion_mnist", "--steps=30", "--test-images=100")


def free_port():
    """Below those that the kernel gives to connections, so that none takes it; each test begins at another."""
    for port in PORTS:
        with socket.socket() as one:
            try:
                one.bind(("", port))
                return port
            except OSError:
                pass
    raise AssertionError("no port is free")


def clean(**variables):
    """This environment without what a launcher says, and with these variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(MARKS)}
    return {**environment, **{name: str(value) for name, value in variables.items()}}


class Job:
    """Ranks that are started one by one, each with variables of its own."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.ranks = []

    def start(self, line, closed=(), **variables):
        """Without the descriptors `closed`."""
        rank = subprocess.Popen([str(self.folder / line[0]), *line[1:]], env=clean(**variables), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                preexec_fn=lambda: [os.close(fd) for fd in closed])
        self.ranks.append(rank)
        return rank

    def end(self):
        """Waits for all ranks; what each has said, as subprocess.run returns it."""
        try:
            said = [late.finish(rank, LIMIT) for rank in self.ranks]
        finally:
            for rank in self.ranks:
                rank.kill()
        done = [subprocess.CompletedProcess(rank.args, rank.returncode, *one) for rank, one in zip(self.ranks, said)]
        self.ranks = []
        return done

    def run(self, line, environments):
        for variables in environments:
            self.start(line, **variables)
        return self.end()


def values(done):
    """The key=value pairs of rank 0's last line; every rank ended well and said nothing else."""
    late.unless_started("".join(one.stderr for one in done), *(one.returncode for one in done))
    for one in done:
        expect(one.returncode == 0 and not one.stderr, one, "a rank failed or complained")
    return dict(pair.split("=", 1) for pair in done[0].stdout.splitlines()[-1].split())


def by_hand(ranks, **more):
    meet = f"localhost:{free_port()}"
    return [{"RONDE_RANK": rank, "RONDE_SIZE": ranks, "RONDE_MEET": meet, **more} for rank in range(ranks)]


def torchrun(ranks):
    port = free_port()
    return [{"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks,
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for rank in range(ranks)]


def tf_config(ranks):
    addresses = [f"localhost:{free_port()}" for _ in range(ranks)]
    cluster = {"chief": addresses[:1], "worker": addresses[1:]}
    tasks = [{"type": "chief", "index": 0}] + [{"type": "worker", "index": i} for i in range(ranks - 1)]
    return [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks]


def slurm(ranks):
    return [{"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": ranks, "SLURM_STEP_NODELIST": socket.gethostname(),
             "SLURM_STEP_NUM_NODES": 1, "SLURM_JOB_ID": os.getpid(), "SLURM_STEP_ID": 0} for rank in range(ranks)]


def under_mpirun(folder, mpirun, ranks, line):
    done = late.run([mpirun, "--bind-to", "none", "--oversubscribe", "-np", ranks, pathlib.Path(folder) / line[0],
                     *line[1:]], LIMIT, env=clean(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1))
    return values([done])


def check_same_bits(folder, mpirun):
    """Whatever starts the ranks, they train to the same bits."""
    line = (*TRAIN, "--data=" + unpacked(folder))
    for ranks in (2, 3):
        expected = under_mpirun(folder, mpirun, ranks, line)
        assert expected["ranks"] == str(ranks), expected
        for launcher in (by_hand, torchrun, tf_config, slurm):
            found = values(Job(folder).run(line, launcher(ranks)))
            for key in ("ranks", "param_hash", "train_loss", "steps"):
                assert found[key] == expected[key], f"{launcher.__name__}: {key}: {found} instead of {expected}"
        print(f"{ranks} ranks: param_hash={expected['param_hash']} by hand, torchrun, TF_CONFIG, Slurm and mpirun")


def expect_line(done, *parts):
    """A failure in one line of standard error with all of these parts."""
    expect(done.returncode not in (0, -signal.SIGABRT, -signal.SIGSEGV), done, "expected an orderly failure")
    lines = [line for line in done.stderr.splitlines() if "terminate" not in line]
    expect(len(lines) == 1, done, "expected one line")
    expect(all(part in lines[0] for part in parts), done, f"expected {parts}")


def check_wrong(folder, _):
    """What is wrong at the start is one line on each rank."""
    line = ("linear_regression",)
    # A rank that was told another size.
    environments = by_hand(3)
    environments[2]["RONDE_SIZE"] = 4
    for done in Job(folder).run(line, environments):
        expect_line(done, "rank 2 (host ", "was told that the job has 4 ranks", "RONDE_SIZE")
    # A rank that is missing is named at the deadline, and so is rank 0.
    began = time.monotonic()
    environments = by_hand(3, RONDE_START_TIMEOUT_SECONDS=4)
    for done in Job(folder).run(line, [environments[0], environments[2]]):
        expect_line(done, f"rank 1 (host {socket.gethostname()})", "took no part in meeting at localhost:")
    for done in Job(folder).run(line, environments[1:]):
        expect_line(done, "did not reach rank 0 at localhost:", "Connection refused")
    late.at_most(time.monotonic() - began, 40, "what has deadlines of 4 s")
    # What cannot be: each says so at once.
    for variables, parts in (
            ({"RANK": 0, "WORLD_SIZE": 2, "RONDE_RANK": 0, "RONDE_SIZE": 3},
             ("two launchers contradict each other", "RANK=0 WORLD_SIZE=2", "RONDE_RANK=0 RONDE_SIZE=3")),
            ({"RONDE_RANK": 0, "RONDE_SIZE": 2, "RONDE_MEET": "node1:29500"},
             ("without a secret", "export RONDE_JOB_SECRET=$(head")),
            ({"RONDE_RANK": 0, "RONDE_SIZE": 2, "RONDE_MEET": "localhost:1", "RONDE_JOB_SECRET": "short"},
             ("RONDE_JOB_SECRET holds a secret of 5 bytes",))):
        done, = Job(folder).run(line, [variables])
        expect_line(done, *parts)
        expect("short" not in done.stderr, done, "the secret was printed")
    # Off makes a job of one, whatever the variables say.
    done, = Job(folder).run(line, [{**torchrun(2)[1], "RONDE_ALONE": "1"}])
    expect(done.returncode == 0 and "ranks=1" in done.stdout, done, "off makes no job of one")


def check_half_words(folder, _):
    """Half of a launcher's words is a line, and no training; so are a launcher's words under a strategy of one process."""
    for variables, parts in (
            ({"LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2, "WORLD_SIZE": 2, "NODE_RANK": 0, "MASTER_ADDR": "localhost",
              "MASTER_PORT": 29777}, ("WORLD_SIZE is set, but RANK is not",)),
            ({"MV2_COMM_WORLD_RANK": 1, "MV2_COMM_WORLD_SIZE": 2}, ("2 processes were started by the mpirun of MVAPICH",)),
            ({"TF_CONFIG": '{"task": {"type": "worker", "index": 1}}'}, ("names no cluster",))):
        done, = Job(folder).run(("linear_regression",), [variables])
        expect_line(done, *parts, "RONDE_ALONE=1" if "TF_CONFIG" not in variables else "TF_CONFIG")
    for strategy in ("none", "onedevice", "mirrored", "central"):
        for variables in (tf_config(2)[0], slurm(2)[0], torchrun(2)[0], {"PMI_RANK": 0, "PMI_SIZE": 2}):
            done, = Job(folder).run((*TRAIN, f"--strategy={strategy}"), [variables])
            expect_line(done, "is for one process", "RONDE_ALONE=1", "multiworker")
            expect(done.returncode == 78, done, "expected the code of a wrong configuration")


def check_child(folder, mpirun):
    """A child of a rank is told so, however the rank was started, and the rank does not suffer."""
    worker = "test/child_worker"
    done = {"exec": "helper's code 3", "fork": "helper's code 3", "run": "helper's code 0"}
    for how, said in done.items():
        line = (worker, how, *([str(pathlib.Path(folder) / "ronderun"), "-np", "2",
                                str(pathlib.Path(folder) / worker), "helper"] if how == "run" else ()))
        jobs = {launcher.__name__: Job(folder).run(line, launcher(2)) for launcher in (by_hand, torchrun, tf_config)}
        jobs["mpirun"] = [late.run([mpirun, "--bind-to", "none", "--oversubscribe", "-np", 2,
                                    pathlib.Path(folder) / line[0], *line[1:]], LIMIT,
                                   env=clean(OMPI_ALLOW_RUN_AS_ROOT=1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1))]
        for launcher, ranks in jobs.items():
            late.unless_started("".join(one.stderr for one in ranks), *(one.returncode for one in ranks))
            out, err = ("".join(getattr(one, stream) for one in ranks) for stream in ("stdout", "stderr"))
            all_ranks = subprocess.CompletedProcess(ranks[0].args, ranks[0].returncode, out, err)
            expect(out.count(f" of 2 done: {said}") == 2, all_ranks, f"{launcher}: the ranks have suffered")
            if how == "run":
                expect(all(f"helper: rank {rank} of 2" in out for rank in (0, 1)), all_ranks, "no job of its own")
            else:
                expect(err.count("helper: ") == 2 and err.count("is a child of rank ") == 2, all_ranks, "nobody is told")
                expect("RONDE_ALONE=1 makes it a job of one" in err, all_ranks, "no way out")


    # Python's os.environ is a copy, which is what children are started with.
    child = "import ronde\ntry: ronde.Engine()\nexcept ronde.Error as error: print(error)"
    rank = ("import os, subprocess, sys, ronde\nengine = ronde.Engine()\n"
            f"print(subprocess.run([sys.executable, '-c', {child!r}], env={{**os.environ}}, capture_output=True,"
            " text=True).stdout)\nengine.close()")
    for number, one in enumerate(Job(folder).run((sys.executable, "-c", rank), by_hand(2, **python_paths(folder)))):
        expect(one.returncode == 0 and f"is a child of rank {number} of 2" in one.stdout, one, "Python's child is not told")


def python_paths(folder):
    return {"LIBRONDE": pathlib.Path(folder).resolve().parent / "lib" / "libronde.so",
            "PYTHONPATH": pathlib.Path(__file__).resolve().parents[3] / "bindings" / "python",
            "PYTHONDONTWRITEBYTECODE": 1}


def check_secret(folder, _):
    """Over TCP, as over hosts: with the secret in a file or in the environment."""
    line = ("linear_regression",)
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        make_secret, = re.findall(r"^\(umask.* > job\.secret\)", PAGE, re.MULTILINE)
        assert late.run(["sh", "-c", make_secret], LIMIT, cwd=place).returncode == 0, make_secret
        secret = pathlib.Path(place) / "job.secret"
        # A name or an address of this host that is no loopback address makes the ranks meet over TCP.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("192.0.2.1", 9))
                here = probe.getsockname()[0]
            except OSError:
                here = socket.gethostname()
        def environments(limit=60, **of_rank_1):
            both = [{"RONDE_RANK": rank, "RONDE_SIZE": 2, "RONDE_MEET": f"{here}:{port}",
                     "RONDE_START_TIMEOUT_SECONDS": limit} for rank in range(2)]
            both[0]["RONDE_JOB_SECRET_FILE"] = secret
            both[1].update(of_rank_1)
            return both
        same = secret.read_text(encoding="ascii")
        assert values(Job(folder).run(line, environments(RONDE_JOB_SECRET=same)))["ranks"] == "2"
        # Somebody else's program has the port.
        with socket.create_server(("", port)):
            rank_0, rank_1 = Job(folder).run(line, environments(2, RONDE_JOB_SECRET=same))
        expect_line(rank_0, "rank 0 cannot listen at the meeting point", "Address already in use", "choose another port")
        expect_line(rank_1, "rank 1 did not reach rank 0 at", "connected, but there was no answer")


def check_death(folder, _):
    """By hand nobody ends the survivors of a death: they name the dead rank and end by themselves."""
    for victim in (0, 1):
        job = Job(folder)
        for variables in by_hand(3):
            job.start(("train_fashion_mnist", "--epochs=100", "--log-every=1"), **variables)
        out = job.ranks[0].stdout
        while "step" not in (text := out.readline()):
            assert text, "the training did not begin"
        job.ranks[victim].kill()
        began = time.monotonic()
        done = job.end()
        took = time.monotonic() - began
        for rank, one in enumerate(done):
            if rank == victim:
                continue
            expect(one.returncode not in (0, -signal.SIGABRT), one, "expected a failure")
            expect(f"rank {victim} " in one.stderr and "died" in one.stderr, one, "the dead rank is not named")
        late.at_most(took, 30, f"the end of the survivors of rank {victim}")
        print(f"rank {victim} killed: the others were over in {took:.1f} s")


# Starts the tasks of a step on this host, each with the variables that Slurm gives it.
SRUN = r"""#!/bin/sh
[ "$1" = --mpi=none ] || { echo "srun: $1?" >&2; exit 2; }
shift
export SLURM_STEP_NUM_TASKS="$SLURM_NTASKS" SLURM_STEP_NODELIST="$(hostname)" SLURM_STEP_NUM_NODES=1 SLURM_STEP_ID=0
tasks=
for task in $(seq 1 $((SLURM_NTASKS - 1))); do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" &
  tasks="$tasks $!"
done
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" || exit
for task in $tasks; do wait "$task" || exit; done
"""


def check_batch_script(folder, _):
    """The script of launcher/CLUSTER.md for Slurm without MPI, as it is, with a stand-in for srun."""
    script, = (block for block in re.findall(r"^```sbatch\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "srun" in block)
    by_hand_ = values(Job(folder).run(TRAIN, by_hand(2)))
    with tempfile.TemporaryDirectory(prefix="ronde_slurm_") as name:
        place = pathlib.Path(name)
        program = f"#!/bin/sh\nexec {pathlib.Path(folder).resolve() / TRAIN[0]} {' '.join(TRAIN[1:])} \"$@\"\n"
        for file, text in (("script", script), ("srun", SRUN), (TRAIN[0], program)):
            (place / file).write_text(text)
            (place / file).chmod(0o755)
        done = late.run([place / "script"], LIMIT, cwd=place, env=clean(SLURM_JOB_ID=os.getpid(), SLURM_NTASKS=2,
                                                                        PATH=f"{place}:{os.environ['PATH']}"))
        found = values([done])
        assert found["ranks"] == "2" and found["param_hash"] == by_hand_["param_hash"], f"{found} instead of {by_hand_}"
        expect((place / "run").is_dir(), done, "--logdir did not reach the program")


def check_late_chief(folder, _):
    """Workers wait for a chief that comes 10 s later."""
    job = Job(folder)
    chief, *workers = tf_config(3)
    for variables in workers:
        job.start(("linear_regression",), **variables)
    time.sleep(10)
    job.start(("linear_regression",), **chief)
    done = job.end()
    assert values(done[-1:] + done[:-1])["ranks"] == "3"


def check_store(folder, _):
    """Ranks that meet over a folder, and over one that cannot be."""
    with tempfile.TemporaryDirectory() as place:
        def run(where, ranks, size, **variables):
            job = Job(folder)
            for rank in ranks:
                job.start(("shared_folder", str(pathlib.Path(place) / where), str(rank), str(size)), **variables)
            return job.end()
        done = run("a", (0, 1, 2), 3)
        assert values(done) == {"ranks": "3", "average": "1"}, done
        # What started the processes does not matter: the program knows better.
        assert values(run("b", (0, 1), 2, RANK=7, WORLD_SIZE=9))["ranks"] == "2"
        full, = run("/dev/null", (1,), 2)
        expect(full.returncode == 1 and "Not a directory" in full.stderr, full, "an exception of the store is lost")


def check_closed_descriptors(folder, _):
    """What a program prints that was started without standard output, or error, reaches nothing of Ronde's."""
    line = ("linear_regression", "--steps=300", "--steps-to-validate=1")
    expected = values(Job(folder).run(line, by_hand(2)))["param_hash"]
    for closed in ((1,), (2,), (0, 1, 2)):
        job = Job(folder)
        for variables in by_hand(2, RONDE_LOG_LEVEL="info"):
            job.start(line, closed, **variables)
        for rank, one in enumerate(job.end()):
            expect(one.returncode == 0, one, f"a rank failed without the descriptors {closed}")
            expect(rank != 0 or 1 in closed or expected in one.stdout, one, "other bits")


def check_left_open(folder, _):
    """An engine that the program leaves open is closed when its process exits: no rank takes that for a death."""
    for how, said in (("global", "x: 2"), ("never", "in a destructor: ok 2")):
        for done in Job(folder).run(("test/exit_worker", how), by_hand(2)):
            expect(done.returncode == 0 and said in done.stdout and not done.stderr, done, how)
    first, second = Job(folder).run(("test/exit_worker", "exit"), by_hand(2))
    for one, code in ((first, 4), (second, 3)):
        expect(one.returncode == code and "rank 1 ended its process, by exit()" in one.stderr, one, "exit")


def main():
    check, folder, mpirun = sys.argv[1:]
    globals()[f"check_{check}"](folder, mpirun)


if __name__ == "__main__":
    late.end(main)
