#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An outsider's Python program, with ctypes alone: what a language needs that cannot read ronde.h.

usage: job_of_one.py LIBRONDE
"""
import ctypes
import sys

RONDE_F64, RONDE_SUM = 11, 1


class Statistics(ctypes.Structure):
    """As old as its first three fields."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("batches", ctypes.c_uint64), ("tensors", ctypes.c_uint64)]


def main():
    ronde = ctypes.CDLL(sys.argv[1])
    ronde.ronde_error_message.restype = ctypes.c_char_p
    engine, error = ctypes.c_void_p(), ctypes.c_void_p()

    def call(function, *arguments):
        if function(*arguments, ctypes.byref(error)) != 0:
            sys.exit(ronde.ronde_error_message(error).decode())

    call(ronde.ronde_engine_open, None, ctypes.byref(engine))
    values = (ctypes.c_double * 3)(1, 2, 3)
    call(ronde.ronde_allreduce_flat, engine, b"gradient", values, ctypes.c_int64(3), RONDE_F64, RONDE_SUM)
    assert list(values) == [1, 2, 3], list(values)

    # The struct is as large as the caller says, whatever the library knows.
    both = (Statistics * 2)()
    both[1].struct_size = both[1].batches = both[1].tensors = 77
    ronde.ronde_statistics_init_sized(ctypes.byref(both[0]), ctypes.c_size_t(ctypes.sizeof(Statistics)))
    assert both[0].struct_size == ctypes.sizeof(Statistics)
    call(ronde.ronde_engine_statistics, engine, ctypes.byref(both[0]))
    assert both[0].tensors == 1 and both[0].batches == 1, (both[0].tensors, both[0].batches)
    assert (both[1].struct_size, both[1].batches, both[1].tensors) == (77, 77, 77)
    for size in (0, 4):  # no room for struct_size
        ronde.ronde_statistics_init_sized(ctypes.byref(both[1]), ctypes.c_size_t(size))
    ronde.ronde_statistics_init_sized(None, ctypes.c_size_t(ctypes.sizeof(Statistics)))
    assert both[1].struct_size == 77

    call(ronde.ronde_engine_close, engine)
    print("a job of one from Python works")


if __name__ == "__main__":
    main()
