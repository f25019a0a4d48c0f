# SPDX-License-Identifier: Apache-2.0
"""ZMTP 3, the protocol of ZeroMQ, without its library: what a stranger can send."""

import os
import socket
import struct


def frames_of(frames):
    """Frames of a message on a connection of ZMTP 3."""
    out = b""
    for i, frame in enumerate(frames):
        more = 1 if i + 1 < len(frames) else 0
        if len(frame) < 256:
            out += bytes([more, len(frame)]) + frame
        else:
            out += bytes([more | 2]) + struct.pack(">Q", len(frame)) + frame
    return out


def message_of(frames):
    """A message of a task: a piece with the header, the text and the ids, whose tag says that it is the only one."""
    return frames_of([struct.pack("<QII", 1, 0, 1), *frames])


def meet(address, seconds):
    """A connection to a task on this host, which listens in a folder of this user."""
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(seconds)
    stranger.connect(f"/tmp/ronde-{os.geteuid()}/{address}")
    return stranger


def connect(address, identity, seconds):
    """A stranger that speaks ZeroMQ without its library."""
    stranger = meet(address, seconds)
    stranger.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL" + bytes(16) + b"\x00" + bytes(31))

    def read(count):
        got = b""
        while len(got) < count:
            more = stranger.recv(count - len(got))
            assert more, "the server has closed the connection"
            got += more
        return got

    read(64)
    kind = b"\x05READY"
    for name, value in ((b"Socket-Type", b"DEALER"), (b"Identity", identity)):
        kind += bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    stranger.sendall(bytes([4, len(kind)]) + kind)
    flags, size = read(2)
    assert flags == 4
    read(size)
    return stranger
