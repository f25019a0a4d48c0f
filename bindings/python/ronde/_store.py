# SPDX-License-Identifier: Apache-2.0
"""A store of the program's, over which the ranks of a job meet that nothing else introduces."""
from __future__ import annotations

import ctypes
import traceback
from typing import Callable, Optional, Protocol

from ._library import LIBRARY, STORE_FAILURE, STORE_GET, STORE_SET, Status, StoreTable


class Store(Protocol):
    """Keys and values that every rank reads and writes: PyTorch's store, etcd, Redis, a shared folder. Any object with
    these two functions will do.

    One engine uses a store: another one needs another, or keys with another prefix. Keys have at most 128 letters,
    digits, '/', '-' and '_'. Whoever can write to the store can take part in the job. What a function raises, the
    engine's constructor raises; the thread that opens the engine calls them, and no other.
    """

    def set(self, key: str, value: bytes) -> None:
        """Puts a value there, for every rank to get."""

    def get(self, key: str, seconds: float) -> Optional[bytes]:
        """Waits until some rank has put a value there; None if none has after so many seconds."""


class StoreFunctions:
    """A Store as the C ABI takes it. It must live while the engine opens."""

    def __init__(self, store: Store) -> None:
        self.raised: Optional[BaseException] = None
        self.words = ctypes.create_string_buffer(b"")
        self.table = StoreTable()
        LIBRARY.ronde_store_init_sized(ctypes.byref(self.table), ctypes.sizeof(self.table))

        def put(_, key: bytes, address: int, size: int) -> int:
            def keep() -> Status:
                store.set(key.decode(), ctypes.string_at(address, size))
                return Status.OK

            return self._guarded(keep)

        def get(_, key: bytes, nanoseconds: int, take: Callable, taker: int) -> int:
            def look() -> Status:
                value = store.get(key.decode(), max(0, nanoseconds) / 1e9)
                if value is None:
                    return Status.DEADLINE
                take(taker, value, len(value))
                return Status.OK

            return self._guarded(look)

        self.table.set, self.table.get = STORE_SET(put), STORE_GET(get)
        self.table.failure = STORE_FAILURE(lambda _: ctypes.addressof(self.words))

    def _guarded(self, function: Callable[[], Status]) -> int:
        try:
            return int(function())
        except BaseException as error:  # pylint: disable=broad-except
            self.raised = error
            words = "".join(traceback.format_exception_only(type(error), error)).strip()  # also where its str() fails
            self.words = ctypes.create_string_buffer(words.encode(errors="replace"))  # it may have lone surrogates
            return int(Status.SYSTEM)

    def release(self) -> None:
        """Once the engine is open: the functions and this object hold each other, and the store with them."""
        self.table = StoreTable()
