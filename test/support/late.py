# SPDX-License-Identifier: Apache-2.0
"""The deadlines of tests that are scripts. On a busy machine a test may miss one although nothing is wrong: it notes
that and goes on, and if all the rest is right it ends with the exit code LATE. ./dev test tries it once more then,
alone (test/second_tries.py). A wrong value, a crash or a hang is a failure, however late the test was before.

The main function of a test is started by end(), which decides on the exit code:

    if __name__ == "__main__":
        late.end(main)

Elsewhere a note would be lost, so there a missed deadline is an AssertionError.
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

LATE = 79  # what a test ends with that was late, and right
SKIPPED = 77  # what it ends with where this machine cannot run it
# The last line of a test that was late in ./dev test: ctest does not count such a test as failed.
MARK = "late, to be tried again: "
# What should come in a second and has not come in four hangs.
PATIENCE = 4
PAUSE = 0.01  # between two looks
RESERVE = 10  # of the time that ctest gives a test: to end what was started, and to say what was seen
BEGAN = time.monotonic()

# How the engines of a job say that the others were not there before the deadline of the start, and OpenMPI's daemons.
NOT_STARTED = re.compile(r"in time.*RONDE_START_TIMEOUT_SECONDS|RONDE_START_TIMEOUT_SECONDS raises the limit"
                         r"|ORTE was unable to reliably start one or more daemons")
# With one of these words it was no deadline that ended the job.
CRASHED = re.compile(r"Sanitizer|runtime error: |signal \d|Segmentation fault|Aborted|terminate called|Traceback")

_notes = None  # a list while end() runs the test


class NotStarted(Exception):
    """The job under test could not start in time: there is nothing to look at."""


def note(why):
    """The test was late, and goes on."""
    if _notes is None:
        raise AssertionError(why)
    print(f"late: {why}", flush=True)
    _notes.append(" ".join(why.split()))


def at_most(took, seconds, what):
    """What took so long should take no longer than so many seconds; four times as long is a hang."""
    assert took <= PATIENCE * seconds, f"{what} took {took:.1f} s, and should take at most {seconds:g} s"
    if took > seconds:
        note(f"{what} took {took:.1f} s, and should take at most {seconds:g} s")


def patience_for(seconds):
    """How long the test waits for what should take no longer than so many seconds. It hangs if it takes longer."""
    limit = float(os.environ.get("SECOND_TRIES_LIMIT", "inf"))
    return max(seconds, min(PATIENCE * seconds, BEGAN + limit - RESERVE - time.monotonic()))


def until(condition, seconds, what, runs=lambda: True):
    """Waits until the condition holds, which should be soon, and returns its value. When `runs()` is false, nothing is
    left that could bring it about."""
    began, patience = time.monotonic(), patience_for(seconds)
    while True:
        look = time.monotonic()
        ends = not runs()  # asked before, so that what was done last is seen
        value = condition()
        took = time.monotonic() - began
        if value:
            at_most(took, seconds, f"the wait for {what}")
            return value
        assert not ends, f"waited for {what}: all has ended after {took:.1f} s"
        assert took < patience, f"waited for {what}: nothing after {took:.1f} s"
        time.sleep(max(PAUSE, time.monotonic() - look))  # others need the cores more


def finish(process, seconds, what=None, began=None):
    """Waits for the end of a process, which should be soon after it began, or else after now, and returns what
    communicate() does. One that hangs is ended, with all that it has started."""
    now, patience = time.monotonic(), patience_for(seconds)
    began, what = began or now, what or name_of(process.args)
    try:
        said = process.communicate(timeout=began + patience - now)
    except subprocess.TimeoutExpired as error:
        kill(process)
        said = "\n".join(text_of(part) for part in (error.stdout, error.stderr) if part)
        raise AssertionError(f"no end after {patience:.1f} s: {what}\n{said}") from None
    at_most(time.monotonic() - began, seconds, what)
    return said


def run(line, seconds, what=None, **settings):
    """subprocess.run() of a command that should end soon. The result also says how many seconds it took."""
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                "errors": "replace", **settings}
    began = time.monotonic()
    with subprocess.Popen([str(word) for word in line], **settings) as process:
        try:
            out, err = finish(process, seconds, what)
        except BaseException:
            kill(process)
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    done.seconds = time.monotonic() - began
    return done


def name_of(line):
    """A command in a few words."""
    words = [line] if isinstance(line, str) else [os.path.basename(str(word)) for word in line]
    return " ".join(" ".join(words).split())[:80]


def text_of(part):
    return part.decode(errors="replace") if isinstance(part, bytes) else part


def descendants_of(parent):
    """The processes below one."""
    children = {}
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            above = int(file.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(above, []).append(int(file.parent.name))
    found = [parent]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def kill(process):
    """Ends a process and all below it."""
    if process.poll() is None:
        for pid in [process.pid, *descendants_of(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def unless_started(said, *codes):
    """Ends the test as late if the job that has said this, and ended with these codes, could not start in time: each
    code but 0 needs a line that says so. This is for jobs in which nothing was broken on purpose until then."""
    lines = [line for line in said.splitlines() if NOT_STARTED.search(line)]
    ended = bool(codes) and all(0 <= code < 128 for code in codes)  # by itself
    if ended and 0 < sum(code != 0 for code in codes) <= len(lines) and not CRASHED.search(said):
        note(f"a job could not start in time: {lines[0][:160]}")
        raise NotStarted


def end(main):
    """Runs the test, and ends this process: with 79 if it was late and nothing else, else as the test ends."""
    global _notes  # pylint: disable=global-statement
    _notes = []
    # What the test starts is another matter.
    folder, name = os.environ.pop("SECOND_TRIES_FOLDER", ""), os.environ.get("SECOND_TRIES_TEST", "")
    try:
        code = main()
    except SystemExit as error:
        code = error.code
    except NotStarted:
        code = None
    if not _notes or code not in (None, 0, SKIPPED):
        sys.exit(code)
    mark = "late: "
    if folder and name:
        # test/second_tries.py believes the line where the file has the same words.
        pathlib.Path(folder, f"{name}.why").write_text(_notes[0], encoding="utf-8")
        mark = MARK
    sys.stderr.flush()
    print(f"\n{mark}{_notes[0]}", flush=True)
    sys.exit(LATE)
