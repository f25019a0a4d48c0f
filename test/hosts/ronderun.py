#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun over several hosts: how a job ends whatever ends it, that the host is named, and that nothing is left.

    ronderun.py <ronderun> HOSTS:RANKS

It takes the place of ronderun for ./run, which starts it on the first host; the training is in launchers.py.
"""

import contextlib
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e" / "launcher"))
from jobs import RONDERUN, SOON, RunningJobs, late, main, processes_with  # noqa: E402  pylint: disable=wrong-import-position

HERE = pathlib.Path(__file__).resolve()
SSHD = pathlib.Path("/usr/sbin/sshd")
LINK_TIMEOUT = 2
OPTIONS = dict(zip(sys.argv[2::2], sys.argv[3::2]))  # on the first host
ALL = ("--hostfile", OPTIONS.get("--hostfile", ""))
SIZE = int(OPTIONS.get("-np", 0))
OTHERS = pathlib.Path(ALL[1]).read_text(encoding="utf-8").split()[2::2] if SIZE else [""]  # the addresses of other hosts
LAST = OTHERS[-1]
NAME = socket.gethostname()[:-1] + LAST[-1:]


def on_host(address, command, **how):
    return subprocess.Popen([OPTIONS["--start"], address, command], **how)


def agent_there():
    """The process that has started the ranks of the last host."""
    found = []
    for process in processes_with(""):
        words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        if words[:2] == [RONDERUN.encode(), b"--agent-of-ronderun"]:
            if os.stat(f"/proc/{process}/ns/net").st_ino == os.stat(f"/run/netns/{NAME}").st_ino:
                found.append(process)
    return found


class OverHosts(RunningJobs):
    START = ("--start", OPTIONS.get("--start", ""))

    def sleepers(self, *options, prepare=":", work="exec sleep 60"):
        return self.start(prepare, work, *ALL, *self.START, *options, ranks=SIZE)

    def check_ends_named(self, run, code, words, seconds=SOON):
        _, errors = late.finish(run, seconds)
        self.assertEqual(run.returncode, code, errors)
        self.assertIn(words, errors.splitlines()[-1])
        late.until(lambda: not processes_with(self.mark) and not agent_there(), SOON, "the end of all")  # beyond a line that is cut

    def last_rank(self):
        """Of the sleepers. One that becomes another program shows no environment for a moment."""
        name, found = f"RONDE_RANK={SIZE - 1}\0".encode(), []

        def look():
            for process in processes_with(self.mark):
                with contextlib.suppress(OSError):  # it has just ended
                    if name in pathlib.Path(f"/proc/{process}/environ").read_bytes():
                        found.append(process)
            return found

        late.until(look, SOON, "the last rank")
        return found[0]

    def test_a_rank_that_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            go = pathlib.Path(folder) / "go"  # not before all are ready: the others are ended at once
            run = self.sleepers(work=f"[ $RONDE_RANK = {SIZE - 1} ] || exec sleep 60; until [ -e {go} ]; do sleep 0.05; done; exit 3")
            go.touch()
            self.check_ends_named(run, 3, f"rank {SIZE - 1} on host {NAME} ended with exit code 3")

    def test_a_rank_that_is_killed(self):
        run = self.sleepers()
        os.kill(self.last_rank(), signal.SIGKILL)
        self.check_ends_named(run, 137, f"rank {SIZE - 1} on host {NAME} was killed by SIGKILL")

    def test_an_agent_that_is_killed(self):
        run = self.sleepers()
        os.kill(max(agent_there()), signal.SIGKILL)  # the other one waits for its end
        self.check_ends_named(run, 1, f"host {LAST} was lost: its agent has ended, or its line was cut")

    def test_ronderun_is_killed(self):
        run = self.sleepers()
        run.kill()
        late.finish(run, SOON)
        late.until(lambda: not processes_with(self.mark) and not agent_there(), SOON, "the end of all")

    def test_signals(self):
        for number, prepare, code, words in (
                (signal.SIGINT, ":", 130, "ended by SIGINT"), (signal.SIGTERM, ":", 143, "ended by SIGTERM"),
                (signal.SIGTERM, "trap 'exit 75' TERM", 75, "has saved its state")):
            run = self.sleepers(prepare=prepare, work="exec sleep 60" if prepare == ":" else "while :; do sleep 0.05; done")
            run.send_signal(number)
            self.check_ends_named(run, code, words)


@unittest.skipUnless(SSHD.exists(), "no sshd")
class OverSsh(OverHosts):
    """Through Debian's sshd on each other host, whose lines can be cut."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        key, config = cls.folder / "key", cls.folder / "config"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        config.write_text(f"HostKey {key}\nAuthorizedKeysFile {key}.pub\nStrictModes no\nPermitRootLogin yes\nPidFile none\n")
        os.makedirs("/run/sshd", exist_ok=True)  # as Debian's service does
        cls.START = ("--start", f"ssh -i {key} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null "
                     "-o LogLevel=ERROR -o ConnectTimeout=2")
        cls.sshds = {}
        for address in OTHERS:
            cls.start_sshd(address)

    @classmethod
    def start_sshd(cls, address):
        def answers():
            with socket.socket() as probe:
                return probe.connect_ex((address, 22)) == 0

        cls.sshds[address] = on_host(address, f"exec {SSHD} -D -e -f {cls.folder}/config", stderr=subprocess.DEVNULL)
        late.until(answers, SOON, "sshd")

    @classmethod
    def tearDownClass(cls):
        for sshd in cls.sshds.values():
            late.kill(sshd)

    def cut(self, *ways):
        """Whoever is on the last host hears (input), or is heard (output), no more."""
        chains = "".join(f"add chain inet cut {way} {{ type filter hook {way} priority 0; policy drop; }};" for way in ways)
        self.addCleanup(lambda: on_host(LAST, "nft delete table inet cut").wait())
        self.assertEqual(on_host(LAST, f"nft 'add table inet cut; {chains}'").wait(), 0)

    def test_a_line_that_is_cut(self):
        for ways in (("input", "output"), ("input",), ("output",)):
            with self.subTest(ways):
                run = self.sleepers("--link-timeout-seconds", str(LINK_TIMEOUT))
                self.cut(*ways)
                self.check_ends_named(run, 1, f"host {LAST}", LINK_TIMEOUT + SOON)
                self.doCleanups()

    def test_a_host_that_does_not_answer(self):
        self.cut("input")
        run = subprocess.Popen([RONDERUN, *ALL, *self.START, "true"], stderr=subprocess.PIPE, text=True)
        _, errors = late.finish(run, 2 + SOON)
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"ronderun: host {LAST} cannot be reached: ssh: connect to host {LAST} port 22", errors)

    def test_restart_without_the_dead_host(self):
        linear_regression = pathlib.Path(RONDERUN).parent / "linear_regression"
        work = f"[ $RONDE_RESTART_ATTEMPT = 0 ] && exec sleep 60; exec {linear_regression}"
        run = self.start(":", work, "-H", f"{LAST}:2,localhost:2", *self.START, "--restarts", "2")
        late.kill(self.sshds[LAST])
        self.addCleanup(self.start_sshd, LAST)
        output, errors = self.check_ends(run, 0, 4 * SOON)  # with pauses of one and two seconds
        self.assertIn(f"ronderun: host {LAST} is left out from now on\n", errors)
        self.assertRegex(output, r"\nranks=2 .*param_hash=")


def outside(program, job):
    hosts, ranks = job.split(":")
    with tempfile.TemporaryDirectory() as folder:
        starter = pathlib.Path(folder) / "starter"
        words = shlex.join([sys.executable, "-B", str(HERE), program])
        starter.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        starter.chmod(0o755)
        return subprocess.run([sys.executable, "-B", HERE.parent / "run", "--hosts", hosts, "--ranks", ranks, "--ronderun",
                               starter, "--", "true"], check=False).returncode


if __name__ == "__main__":
    if not SIZE:
        sys.exit(outside(RONDERUN, sys.argv[2]))
    if not SSHD.exists():
        print(f"without the tests over ssh: there is no {SSHD}: install openssh-server", flush=True)
    del sys.argv[2:]
    main()
