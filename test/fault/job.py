# SPDX-License-Identifier: Apache-2.0
"""Starting jobs with mpirun, finding their ranks, and cleaning up after them: shared by the fault tests."""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position


def own_shared_memory():
    """Gives this process, and the jobs it starts, a /dev/shm of their own, so that nothing of a test that runs at the
    same time is found there. Where this is not root they share the machine's."""
    new_mounts = 0x00020000  # CLONE_NEWNS
    if os.geteuid() != 0 or ctypes.CDLL(None).unshare(new_mounts) != 0:
        return
    for words in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm"]):
        if subprocess.run(["mount", *words], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            return


own_shared_memory()


def processes():
    """Every process of the machine, by id."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def read_proc(pid, name):
    """A file of a process, as bytes; empty when there is no such process any more."""
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def environment_of(pid):
    pairs = read_proc(pid, "environ").split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)


def stat_fields(pid):
    """The fields of /proc/PID/stat from the state on; empty when there is no such process."""
    return read_proc(pid, "stat").decode().rpartition(")")[2].split()


def cpu_seconds(pid):
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def kill_if_there(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def shared_memory():
    return set(os.listdir("/dev/shm"))


def mapped_somewhere(name):
    """Whether a process uses the file: then it belongs to another job that runs at the same time."""
    return any(f"/dev/shm/{name}".encode() in read_proc(pid, "maps") for pid in processes())


def left_behind(before):
    """Files that were added to shared memory and that no process uses."""
    # Other jobs run at the same time: they create files before they map them, and mpirun removes those of a rank that
    # was killed only when its job has ended.
    left = shared_memory() - before
    for _ in range(20):
        left = {name for name in left & shared_memory() if not mapped_somewhere(name)}
        if not left:
            break
        time.sleep(1)
    return left


class Job:
    """mpirun and what it starts. A command is a list of words; `parts` are (ranks, command) pairs."""

    def __init__(self, mpirun, *parts, options=(), environment=None, before=()):
        line = [*before, mpirun, "--bind-to", "none", "--oversubscribe", *options]
        for i, (ranks, command) in enumerate(parts):
            line += ([":"] if i else []) + ["-np", str(ranks), *command]
        self.begin(line, environment)

    def begin(self, line, environment=None):
        """Starts this command line in a session of its own."""
        settings = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        settings.update(environment or {})
        self.started = time.monotonic()
        # The output goes to a file, so that the test need not read it while the job runs.
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, env=settings, start_new_session=True)

    def output(self):
        # At a place of its own: the processes write where the file's own offset is.
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), size, 0).decode(errors="replace")

    def runs(self):
        return self.process.poll() is None

    def find_rank(self, rank, program):
        for pid in late.descendants_of(self.process.pid):
            variables = environment_of(pid)
            if str(rank).encode() not in (variables.get(b"OMPI_COMM_WORLD_RANK"), variables.get(b"RONDE_RANK")):
                continue
            try:
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == os.path.basename(program):
                    return pid
            except OSError:
                pass
        return None

    def kill(self):
        """Ends what is left of the job."""
        late.kill(self.process)

    def struck(self):
        """When something was broken on purpose; None: not yet."""
        return None

    def said(self):
        """All that is left of the job, for whoever looks for what went wrong."""
        return self.output()

    def codes(self):
        return [self.process.returncode]

    def fail(self, why):
        """Ends the job, and this test."""
        self.kill()
        said = self.said()
        print(said)
        if self.struck() is None:
            late.unless_started(said, *self.codes())
        sys.exit(why)

    def wait_until(self, condition, seconds, what):
        """Waits for a condition of a job that still runs; returns its value."""
        try:
            return late.until(condition, seconds, what, self.runs)
        except AssertionError as error:
            return self.fail(str(error))

    def end(self, seconds, why):
        """Waits until the job ends, which it must do by itself. Returns its output."""
        try:
            late.finish(self.process, seconds, f"the end of the job ({why})")
        except AssertionError as error:
            self.fail(str(error))
        return self.output()


class WorkerJob(Job):
    """A job of `worker` ranks (worker.cc), each of which leaves its verdict and its exit code in a file."""

    # Keeps a rank's exit code, which mpirun tells of one rank only; ends as the worker did. The file gets its name
    # when it is whole: a shell makes it empty before it writes.
    KEEP_CODE = ('"$@"; code=$?; file=$FAULT_TEST_FOLDER/rank-$OMPI_COMM_WORLD_RANK.code; '
                 'echo $code >"$file.tmp"; mv "$file.tmp" "$file"; '
                 'if [ $code -gt 128 ]; then kill -$((code - 128)) $$; fi; exit $code')

    def __init__(self, mpirun, worker, ranks, environment=None, recovery=False, options=(), before=(),
                 **words):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ronde_fault_"))
        self.ranks = ranks
        command = ["sh", "-c", self.KEEP_CODE, "sh", worker, f"folder={self.folder}"]
        command += [f"{key}={value}" for key, value in words.items()]
        options = [*options, *(["--enable-recovery"] if recovery else [])]
        super().__init__(mpirun, (ranks, command), options=options, before=before,
                         environment=dict(environment or {}, FAULT_TEST_FOLDER=str(self.folder)))

    def read(self, name):
        """The content of a file of the workers, or None."""
        try:
            return (self.folder / name).read_text()
        except OSError:
            return None

    def pid(self, rank):
        text = self.read(f"rank-{rank}.pid")
        return None if text is None else int(text)

    def verdict(self, rank):
        """The report of a rank, by key; None: none yet."""
        text = self.read(f"rank-{rank}.verdict")
        return None if text is None else dict(line.split("=", 1) for line in text.splitlines())

    def code(self, rank):
        text = self.read(f"rank-{rank}.code")
        return None if text is None else int(text)

    def struck(self):
        """When the victim sent itself the signal, in seconds of time.monotonic(); None: not yet."""
        text = self.read("struck")
        return None if text is None else int(text) / 1e9

    def leftovers(self):
        """Processes of the job that still run."""
        return [pid for pid in processes()
                if environment_of(pid).get(b"FAULT_TEST_FOLDER") == str(self.folder).encode()
                and stat_fields(pid)[:1] not in (["Z"], ["X"])]

    def said(self):
        files = [f"--- {file.name}\n{file.read_text()}" for file in sorted(self.folder.iterdir())]
        return "".join([*files, "--- output\n", self.output()])

    def codes(self):
        """Those of the ranks, and mpirun's where a rank has left none."""
        codes = [self.code(rank) for rank in range(self.ranks)]
        return [code for code in codes if code is not None] + (super().codes() if None in codes else [])

    def runs(self):
        # mpirun may stay when all ranks have ended.
        return super().runs() and None in [self.code(rank) for rank in range(self.ranks)]

    def expect(self, condition, what):
        if not condition:
            self.fail(what)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.log.close()
