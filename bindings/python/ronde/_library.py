# SPDX-License-Identifier: Apache-2.0
"""The C ABI (ronde.h) through ctypes: which libronde.so is used, its structs and prototypes, and how its errors
become exceptions. ctypes lets go of the interpreter's lock in every call."""
from __future__ import annotations

import ctypes
import enum
import os
import pathlib
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint64, c_void_p

ABI = "0.1"  # until 1.0 each minor version may change the structs


class Status(enum.IntEnum):
    """Why an operation failed: a ronde_status of ronde.h."""

    OK = 0
    INVALID_ARGUMENT = 1
    MISMATCH = 2
    DUPLICATE_NAME = 3
    CLOSED = 4
    PEER_FAILED = 5
    DEADLINE = 6
    UNSUPPORTED = 7
    OUT_OF_MEMORY = 8
    SYSTEM = 9
    TRANSPORT = 10
    INTERNAL = 11


class Op(enum.IntEnum):
    """How contributions become the result: a ronde_op of ronde.h. ADASUM is refused with NotImplementedError."""

    AVERAGE = 0
    SUM = 1
    MIN = 2
    MAX = 3
    PRODUCT = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    ADASUM = -1


class Error(RuntimeError):
    """An operation that failed. The text says what, on which ranks, where and what to do.

    status: a Status. rank: the rank at fault, or -1. place: "file:line" where it was first noticed, or "".
    tensor: the name of the operation, or "".
    """

    def __init__(self, text: str, status: Status = Status.INTERNAL, rank: int = -1, place: str = "",
                 tensor: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.rank = rank
        self.place = place
        self.tensor = tensor


class InvalidArgument(Error, ValueError):
    """A call that can never work as it is, or a name that is in flight already: nothing was submitted."""

    def __init__(self, text: str, status: Status = Status.INVALID_ARGUMENT, rank: int = -1, place: str = "",
                 tensor: str = "") -> None:
        super().__init__(text, status, rank, place, tensor)


for _public in (Status, Op, Error, InvalidArgument):
    _public.__module__ = "ronde"  # as tracebacks name them


STORE_TAKE = CFUNCTYPE(None, c_void_p, c_char_p, c_size_t)
STORE_SET = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t)
STORE_GET = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_int64, STORE_TAKE, c_void_p)
STORE_FAILURE = CFUNCTYPE(c_void_p, c_void_p)  # the address of a text


class StoreTable(ctypes.Structure):
    """ronde_store"""

    _fields_ = [("struct_size", c_size_t), ("context", c_void_p), ("set", STORE_SET), ("get", STORE_GET),
                ("failure", STORE_FAILURE)]


class EngineOptions(ctypes.Structure):
    """ronde_engine_options"""

    _fields_ = [("struct_size", c_size_t), ("mpi_communicator", c_uint64), ("mpi_family", c_int32),
                ("local_job_rank", c_int32), ("local_job", c_void_p), ("flags", c_uint64), ("rank", c_int32),
                ("size", c_int32), ("meet", c_char_p), ("store", POINTER(StoreTable)), ("name", c_char_p)]


class Request(ctypes.Structure):
    """ronde_request"""

    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("input", c_void_p), ("output", c_void_p),
                ("shape", POINTER(c_int64)), ("dimensions", c_int32), ("dtype", c_int32), ("op", c_int32),
                ("root", c_int32), ("prescale", c_double), ("postscale", c_double), ("device", c_int32),
                ("stream", c_void_p), ("ready_event", c_void_p), ("priority", c_int32), ("deadline_ns", c_int64),
                ("flags", c_uint64), ("file", c_char_p), ("line", c_int32), ("reserved", c_int32),
                ("compression", c_int32), ("split_count", c_int32), ("splits", POINTER(c_int64)), ("step", c_int64),
                ("weight", c_double)]


class Message(ctypes.Structure):
    """ronde_message"""

    _fields_ = [("struct_size", c_size_t), ("rank", c_int32), ("dtype", c_int32), ("tag", c_int64), ("data", c_void_p),
                ("count", c_int64), ("device", c_int32), ("line", c_int32), ("file", c_char_p), ("flags", c_uint64),
                ("deadline_ns", c_int64)]


class Statistics(ctypes.Structure):
    """ronde_statistics"""

    _fields_ = [("struct_size", c_size_t)] + [(name, c_uint64) for name in (
        "batches", "tensors", "payload_bytes", "control_bytes", "full_requests", "planned_requests",
        "background_wakes", "execution_nanoseconds", "in_place_bytes")]


class Late(ctypes.Structure):
    """ronde_late"""

    _fields_ = [("tensor", c_char_p), ("rank", c_int32), ("reserved", c_int32), ("steps", c_uint64),
                ("total_nanoseconds", c_uint64), ("worst_nanoseconds", c_uint64), ("steps_as_victim", c_uint64)]


class Operation(ctypes.Structure):
    """ronde_operation"""

    _fields_ = [("name", c_char_p), ("input", c_int32), ("output", c_int32), ("reduces", c_int32),
                ("has_root", c_int32), ("has_groups", c_int32)]


GRACE_UNWIND = -1


def _candidates() -> list[str]:
    """Where libronde.so may be, best first. The wheel has it in lib/, with all that it loads."""
    named = os.environ.get("LIBRONDE")
    if named:
        return [named]
    inside = sorted((pathlib.Path(__file__).parent / "lib").glob("libronde.so*"), key=lambda path: len(path.name))
    return [str(path) for path in inside] + [f"libronde.so.{ABI}", "libronde.so"]


def _open() -> ctypes.CDLL:
    refused = []
    for candidate in _candidates():
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            refused.append(f"{candidate}: {error}")
    raise ImportError("libronde.so cannot be loaded: install the wheel that ./dev wheel makes, or name the library in "
                      "LIBRONDE. Tried: " + "; ".join(refused))


def _operations(library: ctypes.CDLL) -> list[Operation]:
    """The library's table."""
    library.ronde_operation_info.restype = POINTER(Operation)
    rows: list[Operation] = []
    while row := library.ronde_operation_info(c_int32(len(rows))):
        rows.append(row.contents)
    return rows


def _prototypes(library: ctypes.CDLL) -> None:
    handle, out = c_void_p, POINTER(c_void_p)
    status = c_int32
    signatures = {
        "ronde_version": (c_char_p, []),
        "ronde_error_message": (c_char_p, [handle]), "ronde_error_place": (c_char_p, [handle]),
        "ronde_error_status": (status, [handle]), "ronde_error_rank": (c_int32, [handle]),
        "ronde_error_release": (None, [handle]),
        "ronde_local_job_create": (status, [c_int32, out, out]), "ronde_local_job_release": (None, [handle]),
        "ronde_store_init_sized": (None, [POINTER(StoreTable), c_size_t]),
        "ronde_engine_options_init_sized": (None, [POINTER(EngineOptions), c_size_t]),
        "ronde_engine_open": (status, [POINTER(EngineOptions), out, out]),
        "ronde_engine_close": (status, [handle, out]),
        "ronde_rank": (c_int32, [handle]), "ronde_size": (c_int32, [handle]),
        "ronde_local_rank": (c_int32, [handle]), "ronde_local_size": (c_int32, [handle]),
        "ronde_statistics_init_sized": (None, [POINTER(Statistics), c_size_t]),
        "ronde_engine_statistics": (status, [handle, POINTER(Statistics), out]),
        "ronde_engine_late": (status, [handle, POINTER(Late), c_size_t, POINTER(c_size_t), out]),
        "ronde_engine_describe": (status, [handle, POINTER(c_char_p), out]),
        "ronde_engine_subset": (status, [handle, POINTER(c_int32), c_int32, c_char_p, c_int64, c_char_p, c_int32, out, out]),
        "ronde_engine_split": (status, [handle, c_int64, c_char_p, c_char_p, c_int32, out, out]),
        "ronde_engine_start_timeline": (status, [handle, c_char_p, c_uint64, out]),
        "ronde_engine_stop_timeline": (status, [handle, out]),
        "ronde_engine_mark": (status, [handle, c_int32, c_char_p, out]),
        "ronde_buffer_allocate": (status, [handle, c_size_t, out, out]),
        "ronde_buffer_allocate_anywhere": (status, [handle, c_size_t, out, out]),
        "ronde_buffer_memory": (c_void_p, [handle]), "ronde_buffer_release": (None, [handle]),
        "ronde_request_init_sized": (None, [POINTER(Request), c_size_t]),
        "ronde_work_wait": (status, [handle, out]),
        "ronde_work_wait_for": (status, [handle, c_int64, POINTER(c_int32), out]),
        "ronde_work_finish": (status, [out, c_int64, handle, out]),
        "ronde_work_poll": (c_int32, [handle]),
        "ronde_work_output": (status, [handle, out, POINTER(POINTER(c_int64)), POINTER(c_int32), POINTER(c_int32), out]),
        "ronde_work_received_splits": (status, [handle, POINTER(POINTER(c_int64)), POINTER(c_int32), out]),
        "ronde_join_async": (status, [handle, out, out]),
        "ronde_work_last_joined": (status, [handle, POINTER(c_int32), out]),
        "ronde_work_wait_slice": (status, [handle, c_int64, POINTER(c_int32), out]),
        "ronde_message_init_sized": (None, [POINTER(Message), c_size_t]),
        "ronde_send_async": (status, [handle, POINTER(Message), out, out]),
        "ronde_recv_async": (status, [handle, POINTER(Message), out, out]),
        "ronde_work_source": (status, [handle, POINTER(c_int32), out]),
        "ronde_work_release": (None, [handle]), "ronde_work_settle": (None, [handle, c_int64]),
        "ronde_prepare": (status, [handle, c_int32, POINTER(Request), out, out]),
        "ronde_prepared_start": (status, [handle, out]), "ronde_prepared_wait": (status, [handle, out]),
        "ronde_prepared_run": (status, [handle, out]),
        "ronde_prepared_output": (status, [handle, out, POINTER(c_int64), out]),
        "ronde_prepared_release": (None, [handle]),
    }
    for row in _operations(library):
        name = row.name.decode()
        signatures[f"ronde_{name}_async"] = (status, [handle, POINTER(Request), out, out])
        if row.has_groups:
            signatures[f"ronde_grouped_{name}_async"] = (status, [handle, POINTER(Request), c_int32, out, out])
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


def _load() -> ctypes.CDLL:
    library = _open()
    library.ronde_version.restype = c_char_p
    version = library.ronde_version().decode()
    if version.rsplit(".", 1)[0] != ABI:
        raise ImportError(f"{library._name} is Ronde {version}, and this package is written for {ABI}: "
                          "install both from one source")
    try:
        _prototypes(library)
    except AttributeError as error:
        raise ImportError(f"{library._name} is older than this package: {error}") from error
    return library


LIBRARY = _load()
OPERATIONS = {row.name.decode(): number for number, row in enumerate(_operations(LIBRARY))}
GROUPED_OPERATIONS = frozenset(f"grouped_{row.name.decode()}" for row in _operations(LIBRARY) if row.has_groups)
VERSION: str = LIBRARY.ronde_version().decode()


def call(function, *arguments, tensor: str = "") -> None:
    """Calls a function of the C ABI whose last argument is the error; raises Error when it fails."""
    error = c_void_p()
    status = function(*arguments, ctypes.byref(error))
    if status != 0:
        raise _exception(status, error, tensor)


def _exception(code: int, error: c_void_p, tensor: str) -> Error:
    try:
        text = LIBRARY.ronde_error_message(error).decode(errors="replace")
        place = LIBRARY.ronde_error_place(error).decode(errors="replace")
        rank = LIBRARY.ronde_error_rank(error)
    finally:
        LIBRARY.ronde_error_release(error)
    status = Status(code)
    kind = InvalidArgument if status in (Status.INVALID_ARGUMENT, Status.DUPLICATE_NAME) else Error
    return kind(text or f"{status.name.lower()}, and no memory for the text", status, rank, place, tensor)
