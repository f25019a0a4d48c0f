# SPDX-License-Identifier: Apache-2.0
"""ronde.run(): a function on so many ranks, from a program or a notebook that is none of them."""
from __future__ import annotations

import importlib
import os
import pathlib
import pickle
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from multiprocessing.connection import Connection, Listener
from typing import Any, Callable, Mapping, Optional, Sequence

KEY = "PYTHON_RUN_KEY"  # a variable of the ranks; the address is in their command line
_LINGER_SECONDS = 5.0  # for what a rank that has ended has sent


class RunError(RuntimeError):
    """A rank of run() raised, or ended without a result. `rank` is None where it is not known which."""

    def __init__(self, text: str, rank: Optional[int] = None) -> None:
        super().__init__(text)
        self.rank = rank


def run(func: Callable[..., Any], args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None, np: int = 1, *,
        hosts: Optional[str] = None, hostfile: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
        executable: Optional[str] = None, options: Sequence[str] = ()) -> list[Any]:
    """Calls func(*args, **kwargs) on `np` ranks, each a process of its own, and returns their results, by rank.

    hosts ("a:2,b:2"), hostfile: as ronderun takes them, also within an allocation; all ranks are on this host without them. env: variables that
    the ranks have besides this process's. executable: their Python. options: further ones of ronderun, as "--tag". What
    ranks print goes where this process's output goes. The function, what it closes over, and the results pass through
    cloudpickle. Raises RunError, with the rank and its traceback, where one raises.
    """
    ranks = _Ranks(np, cloudpickle().dumps((func, tuple(args), dict(kwargs or {}))))
    with tempfile.TemporaryDirectory(prefix="ronde_run_") as folder:
        elsewhere = _first_other_host(hosts, hostfile)
        own = _address_towards(elsewhere) if elsewhere else None
        place = os.path.join(folder, "socket") if own is None else (own, 0)
        key = secrets.token_hex(32)
        with Listener(place, backlog=max(np, 1), authkey=key.encode()) as listener:
            door = threading.Thread(target=ranks.let_in, args=(listener,), daemon=True)
            door.start()
            where = listener.address if own is None else f"{own}:{listener.address[1]}"
            line = [ronderun(), "-np", str(np), "-x", KEY]
            line += [word for name, value in (("--hosts", hosts), ("--hostfile", hostfile)) if value
                     for word in (name, value)]
            line += [word for name in env or {} for word in ("-x", name)]
            line += [*options, executable or sys.executable, "-m", "ronde._rank_of_run", str(where)]
            code = subprocess.run(line, env={**os.environ, **(env or {}), KEY: key}, check=False).returncode
            ranks.wait()
            _knock(listener.address)  # closing a listener wakes nobody who waits at it
            door.join(_LINGER_SECONDS)
    return ranks.results(code)


def cloudpickle() -> Any:
    """The module; its absence is one line."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        raise ImportError("ronde.run() sends functions with cloudpickle, which is not installed: pip install "
                          "'ronde[run]', or pip install cloudpickle") from None


def ronderun() -> str:
    """The launcher: that of the package, or the one in PATH."""
    own = pathlib.Path(__file__).resolve().parent / "bin" / "ronderun"
    found = str(own) if own.exists() else shutil.which("ronderun")
    if found is None:
        raise FileNotFoundError("ronde.run() starts ranks with ronderun, which is neither in the package nor in PATH: "
                                "install the package of ./dev wheel, or put the folder of ronderun into PATH")
    return found


def _first_other_host(hosts: Optional[str], hostfile: Optional[str]) -> Optional[str]:
    names = [one.rpartition(":")[0] or one for one in (hosts or "").split(",") if one]
    if hostfile:
        lines = pathlib.Path(hostfile).read_text(encoding="utf-8").splitlines()
        names += [line.split()[0] for line in lines if line.split() and not line.lstrip().startswith("#")]
    here = {"localhost", "127.0.0.1", socket.gethostname()}
    return next((name for name in names if name not in here), None)


def _address_towards(host: str) -> str:
    """The address by which this host is known where that one is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return probe.getsockname()[0]


def _knock(place: Any) -> None:
    with socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET) as visitor:
        visitor.connect(place)


def _read(answer: bytes) -> tuple[bool, Any]:
    try:
        return pickle.loads(answer)
    except Exception:
        return False, traceback.format_exc()


class _Ranks:
    """What the ranks were sent, and have answered. Threads answer them, one for each."""

    def __init__(self, size: int, work: bytes) -> None:
        self._size, self._work = size, work
        self._answers: dict[int, tuple[bool, Any]] = {}
        self._threads: list[threading.Thread] = []
        self._over = False

    def let_in(self, listener: Listener) -> None:
        """Until wait() has returned and somebody comes. Who does not know the key is turned away."""
        while not self._over:
            try:
                connection = listener.accept()
            except Exception:  # of one that has gone, has not proved the key, or is none of Python
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Connection) -> None:
        with connection:
            try:
                rank = int(connection.recv_bytes())
                connection.send_bytes(self._work)
                self._answers[rank] = _read(connection.recv_bytes())
                connection.send_bytes(b"noted")
            except (EOFError, OSError):
                return  # it has ended

    def wait(self) -> None:
        """For what ranks that have ended have sent."""
        for thread in self._threads:
            thread.join(_LINGER_SECONDS)
        self._over = True

    def results(self, code: int) -> list[Any]:
        for rank, (well, answer) in self._answers.items():  # the first comes first: it is the cause of others
            if not well:
                raise RunError(f"rank {rank} of {self._size} raised:\n{answer}", rank)
        missing = [rank for rank in range(self._size) if rank not in self._answers]
        if missing:
            raise RunError(f"rank {missing[0]} of {self._size} has ended without a result (ronderun ended with {code}): "
                           "look at its output", missing[0])
        return [self._answers[rank][1] for rank in range(self._size)]
