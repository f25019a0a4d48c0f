# SPDX-License-Identifier: Apache-2.0
"""Keeps torch.compile away from a back end in Python.

Inside a function that is compiled an operation is called from PyTorch's C++, and the compiler would go on with whatever
Python runs there, which for other back ends is nothing.
"""
from __future__ import annotations

import sys
import types
from typing import Any, Iterator

import torch


def _codes(thing: Any, module: str) -> Iterator[types.CodeType]:
    """What runs in functions of a module or class, and those in them."""
    for member in list(vars(thing).values()):
        if isinstance(member, type) and member.__module__ == module:
            yield from _codes(member, module)
            continue
        if isinstance(member, property):
            member = member.fget
        member = getattr(member, "__func__", member)
        if isinstance(member, types.FunctionType) and member.__module__ == module:
            yield from _with_inner(member.__code__)


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_inner(constant)


def leave_alone() -> None:
    """What the package has loaded is run as it is, and what it calls, also in a function that is compiled."""
    compiler = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    set_strategy = getattr(compiler, "set_code_exec_strategy", None)
    if set_strategy is None:  # an older compiler, which sees no class of this kind
        return
    skip = compiler._FrameExecStrategy(compiler._FrameAction.SKIP, compiler._FrameAction.SKIP)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "ronde":
            for code in _codes(module, name):
                set_strategy(code, skip)
