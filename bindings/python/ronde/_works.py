# SPDX-License-Identifier: Apache-2.0
"""Works over the C ABI: who waits for them, and who keeps their memory alive."""
from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._library import GRACE_UNWIND, LIBRARY, InvalidArgument, Status, call

if TYPE_CHECKING:
    from ._engine import Engine

_SLICE_SECONDS = 0.1  # how soon a waiting main thread sees a signal
_LONGEST_SLICED_WAIT_SECONDS = 1800.0  # then the library waits by itself, up to its own deadline


class _Flight:
    """One work of the C ABI, and the memory that it reads and writes until it is done."""

    def __init__(self, engine: "Engine", pointer: ctypes.c_void_p, name: str, keep: list) -> None:
        self.pointer = pointer
        self.name = name
        self.keep = keep
        self.pid = engine._pid
        self.lock = threading.Lock()  # a work belongs to one thread at a time
        self.owned = False  # an Output releases it

    def poll(self) -> bool:
        if not self.lock.acquire(blocking=False):
            return False  # another thread waits for it
        try:
            return not self.pointer or LIBRARY.ronde_work_poll(self.pointer) == 1
        finally:
            self.lock.release()

    def wait(self, until: Optional[float]) -> bool:
        """Waits until it is done (True) or the time `until`; raises what became of it."""
        left = -1.0 if until is None else max(0.0, until - time.monotonic())
        if not self.lock.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            return False
        try:
            return self._wait(until)
        finally:
            self.lock.release()

    def _wait(self, until: Optional[float]) -> bool:
        if not self.pointer:
            raise InvalidArgument(f"'{self.name}' was given up when its engine was closed", Status.CLOSED,
                                  tensor=self.name)
        # Signals are handled between calls, and in the main thread only.
        sliced = threading.current_thread() is threading.main_thread()
        patience = time.monotonic() + _LONGEST_SLICED_WAIT_SECONDS
        done = ctypes.c_int32()
        while True:
            now = time.monotonic()
            if until is None and (not sliced or now > patience):
                call(LIBRARY.ronde_work_wait, self.pointer, tensor=self.name)
                return True
            left = _SLICE_SECONDS if until is None else max(0.0, until - now)
            wait = LIBRARY.ronde_work_wait_slice if until is None else LIBRARY.ronde_work_wait_for
            call(wait, self.pointer, int(min(left, _SLICE_SECONDS if sliced else left) * 1e9),
                 ctypes.byref(done), tensor=self.name)
            if done.value:
                return True
            if until is not None and left <= _SLICE_SECONDS:
                return False

    def drive(self, nanoseconds: int, landing: Optional[int] = None) -> bool:
        """Moves it on in this thread, so long at most. True when it is done, and well: then it is released. Else wait()
        says what became of it. landing: where its result is to lie."""
        with self.lock:
            if not self.pointer:
                return False  # another thread has given it up
            LIBRARY.ronde_work_finish(ctypes.byref(self.pointer), nanoseconds, landing, None)
            if self.pointer:
                return False
        self.keep = []
        return True

    def _result(self) -> tuple[int, tuple[int, ...], int]:
        """Address, shape and type of the result of an allgather or an all-to-all that is done."""
        address, shape = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_int64)()
        dimensions, dtype = ctypes.c_int32(), ctypes.c_int32()
        call(LIBRARY.ronde_work_output, self.pointer, ctypes.byref(address), ctypes.byref(shape),
             ctypes.byref(dimensions), ctypes.byref(dtype), tensor=self.name)
        return address.value or 0, tuple(shape[: dimensions.value]), dtype.value

    def hear(self, until: Optional[float]) -> bool:
        """Waits for it until then, whatever becomes of it: its own work says so, if it has one. True when it is done."""
        try:
            return not self.pointer or self.wait(until)
        except RuntimeError:
            return True

    def release(self) -> None:
        """Gives up the handle of a work that is done; a second time it does nothing."""
        with self.lock:
            pointer, self.pointer = self.pointer, None
        if pointer:
            LIBRARY.ronde_work_release(pointer)
        self.keep = []

    def settle(self, grace_ns: int = GRACE_UNWIND) -> None:
        """Waits so long, fails the job on all ranks if that is not enough, and releases; by itself it waits the moment
        of a program that an exception ends."""
        if not self.lock.acquire(blocking=False):
            return  # a thread waits for it, and hears what becomes of it
        try:
            pointer, self.pointer = self.pointer, None
            if pointer:
                LIBRARY.ronde_work_settle(pointer, grace_ns)
        finally:
            self.lock.release()
        self.keep = []


class Output:
    """The result of an allgather or an all-to-all, in memory that the work owns."""

    def __init__(self, flight: _Flight) -> None:
        self.flight = flight
        self.address, self.shape, self.dtype = flight._result()
        flight.owned = True

    def received_splits(self) -> list[int]:
        """The rows that an all-to-all received from each rank."""
        splits, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_int32()
        call(LIBRARY.ronde_work_received_splits, self.flight.pointer, ctypes.byref(splits), ctypes.byref(count),
             tensor=self.flight.name)
        return splits[: count.value]

    def __del__(self) -> None:
        if self.flight.owned:
            self.flight.release()


class Work:
    """An operation in flight. Its arrays are kept alive until it is done, also where the Work is dropped.

    poll() and wait() may be called from several threads.
    """

    def __init__(self, engine: "Engine", flights: list[_Flight], finish: Callable[[list[_Flight]], Any]) -> None:
        self._engine = engine
        self._flights = flights
        self._finish: Optional[Callable[[list[_Flight]], Any]] = finish
        self._result: Any = None
        self._error: Optional[BaseException] = None
        self._end = threading.Lock()
        self._ended = False

    @property
    def name(self) -> str:
        """The name of the operation; of a group, that of its first tensor."""
        return self._flights[0].name if self._flights else ""

    @property
    def succeeded(self) -> bool:
        """Whether a wait has ended with its result."""
        return self._finish is None and self._error is None and self._ended

    def poll(self) -> bool:
        """Whether the operation is done, successfully or not. Never blocks."""
        if self._finish is not None and not all(flight.poll() for flight in self._flights):
            return False
        self._engine._names_since_a_wait.clear()
        return True

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits until the operation is done and returns its result.

        timeout: seconds; without it the wait ends at RONDE_STALL_FAILURE_SECONDS at the latest.
        Raises Error with what became of the operation, and TimeoutError after the timeout. May be called again.
        """
        until = None if timeout is None else time.monotonic() + timeout
        failed: Optional[BaseException] = None
        for flight in self._flights if self._finish is not None else []:
            try:
                if not flight.wait(until):
                    raise TimeoutError(f"'{flight.name}' is not done after {timeout} s")
            except RuntimeError as error:  # the others are waited for: their memory is in use
                failed = failed or error
        with self._end:
            if self._finish is not None:
                self._end_with(failed)
        if self._error is not None:
            raise self._error
        return self._result

    def give_up(self, why: BaseException) -> None:
        """From now on this is what became of it, unless it has ended."""
        with self._end:
            if self._finish is not None:
                self._end_with(why)

    def _end_with(self, failed: Optional[BaseException]) -> None:
        finish, self._finish = self._finish, None
        try:
            if failed is None:
                self._result = finish(self._flights)
        except Exception as error:  # it is not lost: whoever asks again gets it, too
            failed = error
        self._error = failed
        self._engine._landed(self._flights)
        self._ended = True

    def __del__(self) -> None:
        if getattr(self, "_finish", None) is not None:
            self._engine._dropped.extend(self._flights)
