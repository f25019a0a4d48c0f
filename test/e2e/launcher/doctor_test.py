#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun doctor finds each fault that is injected, and says what mends it.

    doctor_test.py <ronderun> [unittest's arguments]
"""

import pathlib
import re
import subprocess
import tempfile
import unittest

from jobs import DEADLINE, RONDERUN, environment, late, main, ronderun

# Changes what an agent says of itself.
OTHER_VERSION = """
exec python3 -c '
import os, re, subprocess, sys
agent = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
while text := os.read(agent.stdout.fileno(), 65536):
    os.write(1, re.sub(rb"VERSION", b"9.9.9", text))
' "$@"
"""
# Two hosts, n1 and n2, with two lines between them. What else is made goes with the first process.
HOSTS = r"""
set -e
mkdir -p /run/netns
mount -t tmpfs none /run/netns
cat >/run/netns/.enter <<'END'
#!/bin/sh
exec ip netns exec "$1" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$@"
END
chmod +x /run/netns/.enter
for host in 1 2; do ip netns add n$host; ip -n n$host link set lo up; done
for net in 0 1; do
  ip link add eth$net netns n1 type veth peer name eth$net netns n2
  for host in 1 2; do
    ip -n n$host addr add 10.213.$net.$host/24 dev eth$net
    ip -n n$host link set eth$net up
  done
done
# UCX takes no line that does not run yet.
for host in 1 2; do until [ "$(ip -n n$host -o link 2>/dev/null | grep -c 'state UP')" = 2 ]; do sleep 0.05; done; done
eval "$1"
"""
DOCTOR = 'exec /run/netns/.enter n1 "$0" doctor -H n1,n2 --start /run/netns/.enter'
ONE_WAY = """ip netns exec n2 nft 'table inet t { chain c { type filter hook input priority 0;
  ip saddr 10.213.0.0/16 tcp flags & (syn | ack) == syn drop; }; }'"""
PRIVATE = ["unshare", "--mount"]


def may(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def with_mount(command):
    return f"exec unshare --mount sh -c '{command} && exec \"$@\"' sh \"$@\""


class Doctor(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def doctor(self, script, *options):
        """Of this host, and of one that a script starts an agent for."""
        path = self.folder / "start"
        path.write_text(f"#!/bin/sh\nshift\n{script}")
        path.chmod(0o755)
        done = ronderun("doctor", "-H", "localhost,b", "--start", str(path), *options)
        self.said = f"{done.stdout}{done.stderr}exit code {done.returncode}"
        return done

    def check(self, done, level, what, fix, code):
        """A line says it, of b alone, and the next how to mend it."""
        self.assertRegex(done.stdout, rf"(?m)^{level} +b  .*{what}.*\n +-> .*{fix}", self.said)
        self.assertEqual(done.returncode, code, self.said)

    def test_all_is_well(self):
        done = self.doctor('exec "$@"')
        self.assertEqual(done.returncode, 0, self.said)
        self.assertNotRegex(done.stdout, "(?m)^FAIL", self.said)
        for what in ("Ronde with libronde.so", "pidfd_open", "interfaces: ", "each reaches each", "allreduce of 8 MiB"):
            self.assertIn(what, done.stdout, self.said)

    def test_no_agent(self):
        done = self.doctor("echo 'b: Permission denied (publickey).' >&2; exit 255")
        self.check(done, "FAIL", "Permission denied", "ssh-copy-id b", 1)
        self.assertIn("localhost  Ronde with", done.stdout, self.said)
        done = self.doctor('exec "$@"', "--agent", "/nowhere/ronderun")
        self.check(done, "FAIL", "/nowhere/ronderun", "--agent", 1)
        done = self.doctor("exec sleep 60", "--start-timeout-seconds", "1")
        self.check(done, "FAIL", "nothing was heard for 1 s", r"/start b .*ronderun --version", 1)

    def test_other_version(self):
        version = ronderun("--version").stdout.split()[1]
        done = self.doctor(OTHER_VERSION.replace("VERSION", re.escape(version)))
        self.check(done, "FAIL", f"has Ronde 9.9.9, and here is {version}", f"install Ronde {version} on b", 1)

    def test_low_limit(self):
        self.check(self.doctor('ulimit -n 64; exec "$@"'), "FAIL", "64 files", "nofile", 1)

    @unittest.skipUnless(may(*PRIVATE, "true"), "no mount namespace can be made here")
    def test_small_shared_memory(self):
        done = self.doctor(with_mount("mount -t tmpfs -o size=1m none /dev/shm"))
        self.check(done, "WARN", "/dev/shm has 1 MiB", "--shm-size", 0)

    @unittest.skipUnless(may(*PRIVATE, "true"), "no mount namespace can be made here")
    def test_other_processor(self):
        (self.folder / "cpuinfo").write_text("model name\t: Old\nflags\t\t: fpu sse2 avx2\n")
        done = self.doctor(with_mount(f"mount --bind {self.folder}/cpuinfo /proc/cpuinfo"))
        self.check(done, "WARN", "CPU: avx2; localhost has ", "hosts of one kind", 0)

    def test_usage(self):
        for words in (["train"], ["--nonsense"], ["-H"]):
            self.assertEqual(ronderun("doctor", *words).returncode, 2)

    def test_build(self):
        done = ronderun("--check-build")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\[X\] .*/libronde\.so\n")


@unittest.skipUnless(may(*PRIVATE, "--net", "sh", "-c", "ip link add veth9 type veth && nft list tables"),
                     "no networks can be made here")
class Hosts(unittest.TestCase):
    def doctor(self, fault, **more):
        command = [*PRIVATE, "--net", "--pid", "--fork", "--kill-child", "sh", "-c", HOSTS + DOCTOR, RONDERUN, fault]
        done = late.run(command, DEADLINE, env=environment(**more))
        self.said = f"{done.stdout}{done.stderr}exit code {done.returncode}"
        return done

    def test_all_is_well(self):
        done = self.doctor("")
        self.assertEqual(done.returncode, 0, self.said)
        self.assertIn("RONDE_INTERFACE=10.213.0.0/24 would do", done.stdout, self.said)
        self.assertRegex(done.stdout, r"busbw .* GB/s, and of TCP alone \d", self.said)

    def test_interface_down(self):
        done = self.doctor("ip -n n2 link set eth1 down")
        self.assertRegex(done.stdout, r"WARN +n2 +is down: eth1 \(10\.213\.1\.2\)\n +-> ip link set eth1 up", self.said)
        self.assertRegex(done.stdout, r"WARN .*n2 cannot reach n1 at 10\.213\.1\.1:.*\n"
                         r" +-> set RONDE_INTERFACE=10\.213\.0\.0/24", self.said)
        # UCX may or may not choose the line that ends at it.
        done = self.doctor("ip -n n2 link set eth1 down", RONDE_INTERFACE="10.213.0.0/24")
        self.assertIn("each reaches each", done.stdout, self.said)
        self.assertEqual(done.returncode, 0, self.said)

    def test_one_way(self):
        done = self.doctor(ONE_WAY)
        self.assertRegex(done.stdout, r"FAIL +n1 +n1 cannot reach n2 at 10\.213\.0\.2:\d+ \(dropped\).*the other way "
                         r"is open\n +-> on n2: iptables .* -s 10\.213\.0\.1 --dport 29600:29699", self.said)
        self.assertNotIn("n2 cannot reach n1", done.stdout, self.said)
        self.assertEqual(done.returncode, 1, self.said)


if __name__ == "__main__":
    main()
