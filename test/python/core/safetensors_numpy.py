# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files of f32 tensors in the safetensors format, with numpy alone."""
import json

import numpy


def write(path, tensors):
    """tensors: {name: array}"""
    header, at = {}, 0
    arrays = {name: numpy.ascontiguousarray(array, dtype="<f4") for name, array in tensors.items()}
    for name, array in arrays.items():
        # ascontiguousarray() makes a vector of a scalar.
        header[name] = {"dtype": "F32", "shape": numpy.shape(tensors[name]), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(array.tobytes() for array in arrays.values())


def read(path):
    """({name: array}, metadata)"""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    metadata = header.pop("__metadata__", {})
    return {name: numpy.frombuffer(data, "<f4", (one["data_offsets"][1] - one["data_offsets"][0]) // 4,
                                   begin + one["data_offsets"][0]).reshape(one["shape"])
            for name, one in header.items()}, metadata
