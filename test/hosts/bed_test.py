#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bed_test.py <folder of the programs>: the hosts of test/hosts/run are what they claim to be."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

RUN = (sys.executable, "-B", str(pathlib.Path(__file__).resolve().parent / "run"))
SECONDS = 120

# Rank 0 sends for a second, rank 1 counts; both are on hosts of their own.
LINE = r"""
import os, socket, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    server = socket.create_server(("10.213.0.2", 5000))
    link, _ = server.accept()
    count, begin = 0, None
    while data := link.recv(1 << 20):
        begin = begin or time.monotonic()
        count += len(data)
    print("bits per second", 8 * count / (time.monotonic() - begin))
else:
    for _ in range(200):
        try:
            link = socket.create_connection(("10.213.0.2", 5000))
            break
        except OSError:
            time.sleep(0.05)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        link.sendall(bytes(1 << 16))
"""


def fail(text):
    print(text)
    sys.exit(1)


def run(*arguments):
    done = late.run([*RUN, *arguments], SECONDS)
    if done.returncode == late.SKIPPED:
        print(done.stderr.strip())
        sys.exit(late.SKIPPED)
    return done


def check_names():
    """Who runs where, filling host after host and one on each in turn."""
    show = ["--", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname) $(hostname -I)"]
    for map_by, wanted in (("slot", [1, 1, 2, 3]), ("node", [1, 2, 3, 1])):
        done = run("--hosts", "3", "--ranks", "2,1,1", "--map-by", map_by, *show)
        lines = sorted(done.stdout.split("\n"))[1:]
        hosts = [int(re.fullmatch(r"\d ronde-\d+-(\d) 10\.213\.0\.\1 *", line).group(1)) for line in lines]
        if hosts != wanted:
            fail(f"--map-by {map_by}: ranks on hosts {hosts}, not {wanted}\n{done.stdout}{done.stderr}")


def check_line():
    """The line carries the bytes per second that were asked for, and no more."""
    done = run("--hosts", "2", "--rate", "200mbit", "--", sys.executable, "-c", LINE)
    found = re.search(r"bits per second (\S+)", done.stdout)
    if not found:
        fail(f"no rate: {done.stdout}{done.stderr}")
    # The buckets of the line let 256 KB more pass at once.
    if not 20e6 < float(found.group(1)) < 230e6:
        fail(f"a line of 200 Mbit/s carried {float(found.group(1)):.3g} bits per second")


def check_idle():
    """MPI yields while nothing arrives, unless it is told to keep its core."""
    for flags, wanted in (([], "1"), (["--mpi-idle", "spin"], "0")):
        done = run("--hosts", "2", *flags, "--", "sh", "-c", "echo yields=$OMPI_MCA_mpi_yield_when_idle")
        if done.stdout.split() != [f"yields={wanted}"] * 2:
            fail(f"{flags}: expected yields={wanted} on both ranks\n{done.stdout}{done.stderr}")


def check_refusals(program):
    """Bad flags, the exit code of the program, and that a job of Ronde runs."""
    for arguments in (["--hosts", "0", "--", "true"], ["--hosts", "2", "--ranks", "1,x", "--", "true"],
                      ["--hosts", "2", "--ranks", "1,2,3", "--", "true"], ["--hosts", "2"],
                      ["--hosts", "2", "--cut", "3:file", "--", "true"], ["--cut", "1", "--", "true"]):
        if run(*arguments).returncode != 2:
            fail(f"accepted: {arguments}")
    if run("--hosts", "2", "--", "true").returncode != 0:
        fail("true did not succeed")
    if run("--hosts", "2", "--", "false").returncode == 0:
        fail("false succeeded")
    done = run("--hosts", "2", "--", program)
    if done.returncode != 0 or "weight -0.500, bias -1.000" not in done.stdout:
        fail(f"Ronde over two hosts: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def left(marker):
    """Processes that carry the marker in their command."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in path.read_bytes().decode(errors="replace") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            pass  # it has just ended
    return found


def check_nothing_is_left():
    """The hosts are removed however the run ends."""
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        marker = f"11{os.getpid()}{int(number)}"  # seconds to sleep: nobody else sleeps as long
        command = [*RUN, "--hosts", "2", "--", "sleep", marker]
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # The command itself, and a sleeper on each host.
        late.until(lambda: len([pid for pid in left(marker) if pid != job.pid]) >= 4, SECONDS, "the sleepers")
        time.sleep(0.3)
        job.send_signal(number)
        late.finish(job, SECONDS, f"the end after {number.name}")
        late.until(lambda: not left(marker), SECONDS, f"the end of all processes of {shlex.join(command)}")
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    files = [str(path) for folder in ("/run/netns", "/tmp") for path in pathlib.Path(folder).glob("*ronde-[0-9]*-*")]
    if "port1@" in links or files:
        fail(f"left behind: {files}\n{links}")


def main():
    check_names()
    check_line()
    check_idle()
    check_refusals(os.path.join(sys.argv[1], "readme_snippet"))
    check_nothing_is_left()


if __name__ == "__main__":
    late.end(main)
