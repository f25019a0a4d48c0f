#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that are late, wrong or both, for chance_test.py.

usage: planted.py NAME COMPILER      (NAME: a function below; runs in a folder of its own)
"""
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

FOLDER = os.environ.get("SECOND_TRIES_FOLDER")
SAID = "rank 1 (host h) took no part in meeting in time; look at it (RONDE_START_TIMEOUT_SECONDS raises the limit)"
USE_AFTER_FREE = "#include <stdlib.h>\nint main(void) { char* x = malloc(1); free(x); return *(volatile char*)x; }\n"


def first_time():
    """Whether this test has not been run before in this folder."""
    mark = pathlib.Path(sys.argv[1] + ".tried")
    if mark.exists():
        return False
    mark.touch()
    return True


def a_while():
    """How long something takes, and should take: too long the first time, and in time then, also beside other tests."""
    late.PATIENCE = 100
    return (0.3, 0.2) if first_time() else (0, 60)


# ---- in time, or late once ----

def passes():
    late.at_most(1, 1, "a second")
    assert late.until(lambda: 7, 60, "nothing") == 7
    done = late.run(["sh", "-c", "cat; echo out; echo err >&2; exit 3"], 60)
    assert (done.returncode, done.stdout, done.stderr, 0 < done.seconds < 60) == (3, "out\n", "err\n", True)


def skipped():
    sys.exit(late.SKIPPED)


def late_at_most():
    late.at_most(2 if first_time() else 1, 1, "what was\nmeasured")
    print("said last, without an end of the line", end="")


def late_until():
    takes, seconds = a_while()
    ready = time.monotonic() + takes
    assert late.until(lambda: time.monotonic() >= ready and "here", seconds, "what comes") == "here"


def late_run():
    takes, seconds = a_while()
    assert late.run(["sleep", takes], seconds).returncode == 0


def late_finish():
    takes, seconds = a_while()
    with subprocess.Popen(["sleep", str(takes)], stdout=subprocess.PIPE, text=True) as process:
        assert late.finish(process, seconds) == ("", None)


def late_before_a_skip():
    if first_time():
        late.note("before a skip")
        sys.exit(late.SKIPPED)


def late_start():
    if first_time():
        done = late.run(["sh", "-c", f"echo '{SAID}' >&2; exit 1"], 30)
        late.unless_started(done.stderr, done.returncode)
        raise AssertionError("it has started")


# ---- late the first time, and not right the second time ----

def late_twice():
    late.note("as always")


def late_then_wrong():
    assert first_time(), "a wrong value"
    late.note("once")


def late_then_skipped():
    if not first_time():
        sys.exit(late.SKIPPED)
    late.note("once")


# ---- never tried again, whether late or not ----

def wrong():
    late.note("and wrong")
    assert sum([1, 1]) == 3, "a wrong value"


def wrong_text():
    late.note("and wrong")
    sys.exit("a wrong value, said in the other way")


def wrong_code():
    late.note("and wrong")
    return 3


def crash():
    late.note("and dead")
    os.kill(os.getpid(), signal.SIGSEGV)


def hang():
    late.note("and it hangs")
    time.sleep(600)


def hang_in_until():
    late.note("and it hangs")
    late.until(lambda: False, 0.1, "what never comes")


def hang_in_run():
    """With a process below, which must not outlive the test."""
    late.note("and it hangs")
    late.run(["sh", "-c", f"sleep {os.environ['PLANTED_SLEEP']} & wait"], 0.1)


def ended_in_until():
    late.note("and nothing is left to wait for")
    late.until(lambda: False, 30, "what never comes", runs=lambda: False)


def sanitizer_report():
    late.note("and there is a report")
    program = pathlib.Path("use_after_free")
    program.with_suffix(".c").write_text(USE_AFTER_FREE, encoding="ascii")
    subprocess.run([sys.argv[2], "-fsanitize=address", "-w", program.with_suffix(".c"), "-o", program], check=True)
    done = late.run([program.resolve()], 30)
    assert "AddressSanitizer: heap-use-after-free" in done.stderr, "this is no test of a sanitizer"
    # As if that were why another rank has waited in vain.
    late.unless_started(done.stderr + SAID, 1)
    assert done.returncode == 0, done.stderr


def crash_at_the_start():
    for said, code in ((SAID, -signal.SIGSEGV), (SAID, 139), (f"{SAID}\nmpirun: exited on signal 11", 1)):
        late.unless_started(said, 0, code)
    sys.exit("a rank has crashed, and the others have waited for it")


def prints_the_line():
    """As if it were late, and has not asked the helper."""
    print(f"\n{late.MARK}says another")


def prints_another_line():
    """The file is there, of another time."""
    pathlib.Path(FOLDER, "prints_another_line.why").write_text("once", encoding="ascii")
    print(f"\n{late.MARK}says another")


def prints_a_late_test():
    """A wrong one that has run a late one, and shows what that has said."""
    done = late.run([sys.executable, "-B", __file__, "late_twice"], 30)
    assert done.returncode == late.LATE, done
    print(done.stdout.replace("late: ", late.MARK), end="")
    sys.exit(1)


if __name__ == "__main__":
    late.end(globals()[sys.argv[1]])
