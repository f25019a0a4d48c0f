# SPDX-License-Identifier: Apache-2.0
"""What a training has to send beside gradients: parameters, an optimiser's state, sparse tensors."""
from __future__ import annotations

import io
import itertools
import math
import pickle
from typing import Any, Callable, Iterable, Optional, Sequence, Union

import numpy
import torch

from .._job import current_engine
from .._library import Error, InvalidArgument, Op, Status
from .._objects import allgather_object, broadcast_bytes, broadcast_object
from .._process_sets import ProcessSet, engine_of, global_process_set
from ._autograd import TorchOperations
from ._tensors import TorchArrays, gathered_places, places_of, require_dense

operations = TorchOperations(TorchArrays())


def empty(shape: Union[int, Sequence[int]], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """ronde.empty() as a tensor."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
    if count == 0:  # NumPy's would have no address
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(current_engine().empty(count, numpy.uint8)).view(dtype).reshape(shape)


Parameters = Union[dict[str, torch.Tensor], Iterable[tuple[str, torch.Tensor]], Iterable[torch.Tensor]]


def _named(params: Parameters) -> list[tuple[str, torch.Tensor]]:
    if isinstance(params, dict):
        params = sorted(params.items())
    try:
        listed = list(params)
    except TypeError:
        raise InvalidArgument(f"broadcast_parameters() takes a state_dict(), named_parameters() or parameters(), and "
                              f"not a {type(params).__name__}") from None
    return [one if isinstance(one, tuple) else (str(i), one) for i, one in enumerate(listed)]


def broadcast_parameters(params: Parameters, root_rank: int = 0) -> None:
    """Copies rank root_rank's parameters into those of every rank, in place: model.state_dict(), which has the buffers
    too, named_parameters() or parameters(). What is no tensor is left alone, and tied weights are sent once.

    Where the ranks' models differ, or have tensors that are sparse, or neither in host memory nor on a GPU, nothing is
    sent, and every rank gets the error.
    """
    seen: dict[tuple[Any, ...], tuple[str, torch.Tensor]] = {}
    for name, tensor in _named(params):
        if isinstance(tensor, torch.Tensor):
            # What is elsewhere, or sparse, has no address; it is refused once the ranks have compared what they have.
            dense = tensor.device.type in ("cpu", "cuda") and tensor.layout is torch.strided and tensor.numel() > 0
            place = (tensor.data_ptr(), tensor.shape, tensor.stride()) if dense else (name,)
            seen.setdefault(place, (name, tensor.detach()))
    kept = list(seen.values())
    _require_the_same([(name, tuple(tensor.shape), str(tensor.dtype), tensor.device.type, str(tensor.layout))
                       for name, tensor in kept], root_rank)
    _broadcast_all([f"broadcast_parameters.{name}" for name, _ in kept], [tensor for _, tensor in kept], root_rank)


Description = tuple[str, tuple[int, ...], str, str, str]


def _require_the_same(mine: list[Description], root_rank: int) -> None:
    """Raises Error on every rank where one has not the tensors that the root has, in its order."""
    expected = broadcast_object(mine, root_rank, "broadcast_parameters.which")
    difference = next((f"has {one} where rank {root_rank} has {other}" for one, other in
                       itertools.zip_longest(mine, expected, fillvalue="no more tensor") if one != other), None)
    _require_no_trouble(difference, "broadcast_parameters", "the ranks' models differ", Status.MISMATCH)


def _require_no_trouble(mine: Optional[str], function: str, what: str, status: Status) -> None:
    """Raises one Error on every rank where any of them has trouble, and says which have."""
    troubles = {rank: text for rank, text in enumerate(allgather_object(mine, f"{function}.trouble")) if text}
    if troubles:
        listed = "; ".join(f"rank {rank} {text}" for rank, text in list(troubles.items())[:4])
        raise Error(f"{function}(): {what}: {listed}", status, min(troubles), tensor=function)


def _trouble_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _broadcast_all(names: list[str], tensors: list[torch.Tensor], root_rank: int) -> None:
    if tensors:
        operations._broadcast(tensors, True, names, root_rank, global_process_set, blocking=True).wait()


class _StatePickler(pickle.Pickler):
    """Leaves the tensors out, and says what they are."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor):
            return None
        self.tensors.append(obj)
        return tuple(obj.shape), str(obj.dtype).rpartition(".")[2]


class _StateUnpickler(pickle.Unpickler):
    """Makes room for the tensors."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[torch.Tensor] = []

    def persistent_load(self, pid: Any) -> torch.Tensor:
        shape, dtype = pid
        self.tensors.append(torch.empty(shape, dtype=getattr(torch, dtype)))
        return self.tensors[-1]


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0, model: Any = None) -> None:
    """Gives every rank's optimiser the state and the options (learning rate, ...) of rank root_rank's; the others need
    have taken no step. Works for every optimiser whose state_dict() and load_state_dict() do, LBFGS too.

    Where there is no state yet, gradients that are None become zeros, as with Horovod. model is not needed. Where one
    rank cannot send, read or take the state, every rank gets the error.
    """
    engine = current_engine()
    tensors: list[torch.Tensor] = []

    def roots() -> bytes:
        file = io.BytesIO()
        pickler = _StatePickler(file)
        pickler.dump(optimizer.state_dict())
        for tensor in pickler.tensors:
            require_dense(tensor)  # here, where the other ranks still learn of it
        # From host memory, as the others receive it: load_state_dict() puts it where the parameters are.
        tensors.extend(tensor.detach().cpu() for tensor in pickler.tensors)
        return file.getvalue()

    data = broadcast_bytes(roots, root_rank, "object.optimizer_state")
    state: Any = None
    trouble: Optional[str] = None
    if engine.rank != root_rank:
        unpickler = _StateUnpickler(io.BytesIO(data))
        try:
            state, tensors = unpickler.load(), unpickler.tensors
        except Exception as error:  # a class that this rank lacks, say; the others must not wait for its tensors
            trouble = f"cannot read it: {_trouble_of(error)}"
    _require_no_trouble(trouble, "broadcast_optimizer_state", f"the state of rank {root_rank} was not sent",
                        Status.INVALID_ARGUMENT)
    _broadcast_all([f"optimizer_state.{i}" for i in range(len(tensors))], tensors, root_rank)
    if state is not None:
        # A learning rate that is a tensor stays on the device where this rank has its own: it is no state.
        places = [{key: value.device for key, value in group.items() if isinstance(value, torch.Tensor)}
                  for group in optimizer.param_groups]
        try:
            optimizer.load_state_dict(state)
            for group, place in zip(optimizer.param_groups, places):
                group.update((key, group[key].to(device)) for key, device in place.items()
                             if isinstance(group.get(key), torch.Tensor))
        except Exception as error:  # an optimiser of another kind
            trouble = f"cannot take it: {_trouble_of(error)}"
    _require_no_trouble(trouble, "broadcast_optimizer_state", f"the state of rank {root_rank} fits not everywhere",
                        Status.INVALID_ARGUMENT)
    for group in optimizer.param_groups if not optimizer.state else []:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)


def sparse_allreduce_async(tensor: torch.Tensor, name: Optional[str], op: Op = Op.AVERAGE,
                           process_set: ProcessSet = global_process_set) -> Callable[[], torch.Tensor]:
    """Averages or sums a sparse tensor over the ranks, by gathering what is not zero. Call what it returns to wait; the
    result is sparse, and not coalesced."""
    engine = engine_of(process_set)
    size = engine.size
    if op not in (Op.AVERAGE, Op.SUM):
        raise NotImplementedError("sparse_allreduce_async() has Average and Sum alone")
    places = operations.allgather_async(places_of(tensor, tensor._indices(), engine.rank), name and f"{name}.indices",
                                        process_set)
    values = operations.allgather_async(tensor._values(), name and f"{name}.values", process_set)

    def wait() -> torch.Tensor:
        everything = values.wait() / size if op == Op.AVERAGE else values.wait()
        indices = gathered_places(places.wait(), tensor, name or "sparse allreduce")
        return torch.sparse_coo_tensor(indices, everything, tensor.shape)

    return wait
