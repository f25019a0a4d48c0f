# SPDX-License-Identifier: Apache-2.0
"""An optimiser whose gradients are averaged while backward goes on."""
from __future__ import annotations

import contextlib
import numbers
import warnings
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence, Union

import torch

from .._compression import Compression, Compressor
from .._library import InvalidArgument, Op
from .._process_sets import ProcessSet, engine_of, global_process_set, takes_part
from .._requests import STEP, Step, supported
from ._functions import empty, operations, sparse_allreduce_async
from ._tensors import NUMBERS_OF, is_plain

Unit = tuple[torch.Tensor, ...]  # parameters whose gradients are averaged together
Groups = Union[int, Sequence[Sequence[torch.Tensor]], None]


class _Averager:
    """Averages the gradients of parameters: submits each unit when backward has produced all of its gradients for the
    last time in this step, and what is left when the step ends."""

    def __init__(self, op: Op, compression: type[Compressor], passes: int, predivide: float,
                 sparse_as_dense: bool, process_set: ProcessSet) -> None:
        self.how: dict[str, Any] = {"op": op, "compression": compression, "process_set": process_set}
        self.process_set = process_set
        if op == Op.AVERAGE:
            self.how.update(prescale_factor=1.0 / predivide, postscale_factor=predivide)
        self.passes = passes
        self.sparse_as_dense = sparse_as_dense
        self.names: dict[torch.Tensor, str] = {}
        self.units: dict[torch.Tensor, Unit] = {}
        self.left: dict[torch.Tensor, int] = {}  # backward passes until this step is over
        self.works: dict[Unit, list[Callable[[], Any]]] = {}  # in flight, with what ends them
        self.nodes: list[Any] = []  # torch holds them weakly
        self.was_sparse: set[torch.Tensor] = set()
        self.homes: dict[torch.Tensor, Optional[torch.Tensor]] = {}  # on the board; None: stays where torch has it
        self.steps = 0  # that have ended
        self.number: Optional[int] = None  # of this step, where the program gives one
        self.ended: Optional[int] = None  # the number of the step that has ended last

    def register(self, unit: Unit) -> None:
        for parameter in unit:
            self.units[parameter] = unit
            self.left[parameter] = self.passes
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # that accumulates its gradient
            node.register_hook(_hook(weakref.ref(self), parameter))
            self.nodes.append(node)

    def begin_step(self, number: int) -> None:
        if self.works:
            raise InvalidArgument(f"begin_step({number}) in the middle of a step: call it before backward()")
        self.number = number

    def weigh(self, weight: float) -> None:
        if self.works:
            raise InvalidArgument(f"weigh({weight}) in the middle of a step: call it before backward()")
        self.how["weight"] = float(weight)

    def end_step(self, number: int) -> None:
        """The step that ends has this number, which its gradients had no chance to carry if begin_step() has not said
        it: the ranks compare it beside them, before any of them steps."""
        if self.number is None and takes_part(self.process_set) and self.units:
            first = self.names[next(iter(self.units))]
            with self._in_step(Step(number, True)):
                work = operations.allreduce_async_(torch.zeros(1), name=f"step of {first}", op=Op.SUM,
                                                    process_set=self.process_set)
            self.works[()] = [work.wait]
        elif self.number not in (None, number):
            raise InvalidArgument(f"step(number={number}): begin_step() has said {self.number}")

    @contextlib.contextmanager
    def _in_step(self, step: Step) -> Iterator[None]:
        before = STEP.set(step)
        try:
            yield
        finally:
            STEP.reset(before)

    def reset(self) -> None:
        for parameter in self.left:
            self.left[parameter] = self.passes
        self.works.clear()

    def _accumulated(self, parameter: torch.Tensor) -> None:
        unit = self.units[parameter]
        if unit in self.works or self.left[parameter] <= 0:
            raise AssertionError(f"'{self.names[parameter]}': its gradient was computed more than "
                                 f"backward_passes_per_step ({self.passes}) times before step(); raise "
                                 "backward_passes_per_step to accumulate gradients")
        self.left[parameter] -= 1
        if all(self.left[one] == 0 for one in unit):
            self._submit(unit)

    def _submit(self, unit: Unit) -> None:
        with self._in_step(Step(self.steps + 1) if self.number is None else Step(self.number, True)):
            finish = self.works[unit] = []
            dense: list[torch.Tensor] = []
            for parameter in unit:
                if parameter.grad is None:  # another rank may have one
                    zeros = torch.zeros_like(parameter)
                    parameter.grad = _sparse_rows(zeros) if parameter in self.was_sparse else zeros
                if parameter.grad.is_sparse:
                    self.was_sparse.add(parameter)
                if parameter.grad.is_sparse and not self.sparse_as_dense:
                    finish.append(self._submit_sparse(parameter))
                else:
                    dense.append(parameter)
            if dense:
                finish.append(self._submit_dense(dense, len(unit) > 1))

    def _submit_dense(self, parameters: list[torch.Tensor], grouped: bool) -> Callable[[], None]:
        tensors = [one.grad.to_dense() if one.grad.is_sparse else self._at_home(one) for one in parameters]
        name = self.names[parameters[0]]
        if grouped:
            work = operations.grouped_allreduce_async_(tensors, name=name, **self.how)
        else:
            work = operations.allreduce_async_(tensors[0], name=name, **self.how)

        def finish() -> None:
            work.wait()
            for parameter, tensor in zip(parameters, tensors):
                if parameter.grad is not tensor:
                    parameter.grad = _sparse_rows(tensor)

        return finish

    def _at_home(self, parameter: torch.Tensor) -> torch.Tensor:
        """The gradient, from now on in memory that the ranks of this host share, where it is averaged without being
        copied again. Where zero_grad() keeps gradients torch accumulates them there, and nothing is copied at all."""
        if parameter not in self.homes:
            shares = engine_of(self.process_set).local_size > 1 and self.how["compression"] is Compression.none
            dense = parameter.device.type == "cpu" and is_plain(parameter) and parameter.dtype in NUMBERS_OF
            self.homes[parameter] = empty(parameter.shape, parameter.dtype) if shares and dense else None
        home = self.homes[parameter]
        if home is not None and parameter.grad is not home and not parameter.grad.requires_grad:
            parameter.grad = home.copy_(parameter.grad)
        return parameter.grad

    def _submit_sparse(self, parameter: torch.Tensor) -> Callable[[], None]:
        if "weight" in self.how:
            raise NotImplementedError(f"'{self.names[parameter]}': sparse gradients are averaged without weights: make "
                                      "the optimizer with sparse_as_dense=True")
        gradient = parameter.grad
        if gradient._nnz() == 0:  # zero_grad() may leave one without rows of any length
            gradient = _sparse_rows(torch.zeros_like(parameter))
        wait = sparse_allreduce_async(gradient, self.names[parameter], self.how["op"], self.process_set)

        def finish() -> None:
            parameter.grad = wait()

        return finish

    def synchronize(self, goes_on: bool = False) -> None:
        """Ends the step, unless it goes on with another backward: every gradient holds the average, or the first error
        is raised when all are done."""
        failed: Optional[Exception] = None
        try:
            for unit in dict.fromkeys(self.units.values()):
                if unit not in self.works:
                    self._submit(unit)
            for finish in [one for unit in self.works.values() for one in unit]:
                try:
                    finish()
                except RuntimeError as error:
                    failed = failed or error
        finally:
            self.reset()
            self.steps += 1
            self.ended = self.number
            self.number = self.number if goes_on else None
        if failed is not None:
            raise failed


def _hook(averager: "weakref.ref[_Averager]", parameter: torch.Tensor) -> Callable[..., None]:
    """Does nothing once the averager is gone: the model may get another optimiser."""
    def accumulated(*_: Any) -> None:
        alive = averager()
        if alive is not None:
            alive._accumulated(parameter)

    return accumulated


def _sparse_rows(dense: torch.Tensor) -> torch.Tensor:
    """The rows that are not zero, as the gradient of an embedding is."""
    rows = dense.reshape(dense.shape[0], -1).any(1).nonzero().flatten()
    return torch.sparse_coo_tensor(rows.unsqueeze(0), dense.detach()[rows], dense.shape)


class _Distributed:
    """What DistributedOptimizer() puts before the class of an optimiser."""

    _averager: _Averager
    _parameter_names: dict[torch.Tensor, str]
    _synchronized: bool
    _should_synchronize: bool

    def synchronize(self) -> None:
        """Ends the averaging of this step: the gradients hold the averages. For clipping, before step():

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._average()
        self._synchronized = True

    def begin_step(self, number: int) -> None:
        """Gives the step that begins a number, the same on all ranks; before backward(), in every step or in none. A
        step that a rank has left out is an Error on all ranks then (MISMATCH), in that step, from step() or
        synchronize(), and no gradient holds an average of two steps. Without numbers only the end shows it."""
        self._averager.begin_step(number)

    def weigh(self, weight: float) -> None:
        """From now on the gradients of this rank have this weight in the averages, such as the number of samples of
        its batch: before backward(), on every rank, and anew where the number changes. It costs no agreement."""
        self._averager.weigh(weight)

    def _average(self, goes_on: bool = False) -> None:
        """With what has been thawed since the last step, or has come into a group."""
        later = {one: f"allreduce.noname.{i}.{j}" for i, group in enumerate(self.param_groups)
                 for j, one in enumerate(group["params"]) if one.requires_grad and one not in self._averager.units}
        if later:
            _register(self._averager, later, {**later, **self._averager.names}, None)
        self._averager.synchronize(goes_on)

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() inside this block does not average: synchronize() has. A number that it is given must be that of
        begin_step()."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None, *, number: Optional[int] = None) -> Any:
        """Averages the gradients, and then steps. With a closure what each of its calls leaves is averaged, and the
        loss that it returns, by which the optimiser decides: a tensor or a number. `number` is that of begin_step():
        where a rank has left out a step all of them get an Error, and none steps."""
        if self._should_synchronize and closure is not None:
            if number is not None:
                self._averager.begin_step(number)
            try:
                return super().step(lambda: self._averaged(closure))
            finally:
                self._averager.number = None
        if self._should_synchronize:
            if number is not None:
                self._averager.end_step(number)
            if self._synchronized:
                warnings.warn("optimizer.step() called without optimizer.skip_synchronize() context after "
                              "optimizer.synchronize(): the gradients are averaged twice")
            self.synchronize()
        elif number not in (None, self._averager.ended):  # the ranks can compare it no more
            ended = "no number" if self._averager.ended is None else self._averager.ended
            raise InvalidArgument(f"step(number={number}) in skip_synchronize(): the step that synchronize() ended "
                                  f"had {ended}: call begin_step({number}) before backward()")
        self._synchronized = False
        return super().step(closure)

    def _averaged(self, closure: Callable[[], Any]) -> Any:
        loss = closure()
        self._average(goes_on=True)
        process_set = self._averager.process_set
        if not takes_part(process_set) or not isinstance(loss, (torch.Tensor, numbers.Real)):
            return loss
        tensor = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(loss, dtype=torch.float64)
        first = self._parameter_names[self.param_groups[0]["params"][0]]
        mean = operations.allreduce(tensor, None, f"loss of {first}", op=self._averager.how["op"],
                                    process_set=process_set)
        return mean if isinstance(loss, torch.Tensor) else mean.item()

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimiser's own; refused while gradients are being averaged."""
        if self._averager.works:
            raise AssertionError("optimizer.zero_grad() was called after loss.backward() and before optimizer.step() "
                                 "or optimizer.synchronize(): the gradients are being averaged")
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As the optimiser's own, between steps."""
        self._averager.reset()
        self._synchronized = False
        super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimiser's own; every rank adds the same parameters, whose gradients are averaged from now on."""
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        added = self.param_groups[-1]["params"]
        _register(self._averager, added, {one: f"allreduce.noname.{number}.{i}" for i, one in enumerate(added)}, None)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """From the next step on."""
        self._averager.passes = passes
        self._averager.reset()


def _names(named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]],
           groups: list[dict[str, Any]]) -> dict[torch.Tensor, str]:
    owned = [(f"allreduce.noname.{i}.{j}", parameter) for i, group in enumerate(groups)
             for j, parameter in enumerate(group["params"])]
    if named_parameters is None:
        return {parameter: name for name, parameter in owned}
    named = list(named_parameters)
    if not all(isinstance(one, tuple) for one in named):
        raise InvalidArgument("named_parameters is a sequence of (name, parameter), as model.named_parameters() gives")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InvalidArgument("named_parameters has names twice: " + ", ".join(twice))
    found = {parameter: name for name, parameter in named}
    unnamed = sum(parameter not in found for _, parameter in owned)
    if unnamed:
        raise InvalidArgument(f"{unnamed} of the optimizer's {len(owned)} parameters are not in named_parameters: "
                              "name all of them, or none")
    return found


def _units(parameters: list[torch.Tensor], groups: Groups) -> list[Unit]:
    if isinstance(groups, int) and not isinstance(groups, bool):
        if groups < 0:
            raise InvalidArgument("groups is a number of groups, or a list of lists of parameters")
        each, rest = divmod(len(parameters), groups or len(parameters) or 1)
        if groups == 0:
            return [(one,) for one in parameters]
        starts = [i * each + min(i, rest) for i in range(groups + 1)]
        return [tuple(parameters[a:b]) for a, b in zip(starts, starts[1:]) if a < b]
    known = set(parameters)
    units: list[Unit] = []
    grouped: set[torch.Tensor] = set()
    for group in groups or []:
        if not all(isinstance(one, torch.Tensor) for one in group):
            raise InvalidArgument("groups is a number of groups, or a list of lists of parameters")
        if len(set(group)) < len(group) or grouped.intersection(group):
            raise InvalidArgument("a parameter is in two groups, or twice in one")
        grouped.update(group)
        units.append(tuple(one for one in group if one in known))
    return [unit for unit in units if unit] + [(one,) for one in parameters if one not in grouped]


def _register(averager: _Averager, parameters: Iterable[torch.Tensor], names: dict[torch.Tensor, str],
              groups: Groups) -> None:
    averager.names.update(names)
    units = _units([one for one in parameters if one.requires_grad], groups)
    for unit in units if takes_part(averager.process_set) else []:
        averager.register(unit)


def DistributedOptimizer(optimizer: torch.optim.Optimizer,
                         named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]] = None,
                         compression: type[Compressor] = Compression.none, backward_passes_per_step: int = 1,
                         op: Op = Op.AVERAGE, gradient_predivide_factor: float = 1.0, num_groups: int = 0,
                         groups: Groups = None, sparse_as_dense: bool = False,
                         process_set: ProcessSet = global_process_set) -> Any:
    """An optimiser of the same class that averages gradients over the ranks: each while backward goes on, all of them
    at the latest in step() or synchronize(). It shares the state of `optimizer`, which is not to be used any more.

    named_parameters: names that are the same on all ranks; without them parameters are numbered. compression: what
    travels. backward_passes_per_step: how many backward passes add up before a step. gradient_predivide_factor: with
    Average gradients are divided by it before the sum, and by size / it afterwards. groups: how many groups, or lists
    of parameters that are averaged as one unit. sparse_as_dense: sparse gradients are averaged as dense ones.
    process_set: over whose ranks gradients are averaged; another rank steps by its own.

    Gradients on the CPU that travel as they are lie in memory that the ranks of a host share (ronde.empty()) from their
    first step on: `parameter.grad` is that memory in every step, and zero_grad(set_to_none=False) has torch accumulate
    there.

    In each step every rank averages every parameter that requires a gradient then, or did in an earlier step: one may
    be thawed later, in the same step on every rank. One without a gradient on this rank gives zeros (a sparse one that
    never had any must not be left out). Errors are raised by step() and synchronize().
    """
    op = supported(op)
    if isinstance(optimizer, _Distributed):
        raise InvalidArgument("this optimizer is a DistributedOptimizer already")
    if gradient_predivide_factor != 1.0 and op != Op.AVERAGE:
        raise InvalidArgument("gradient_predivide_factor is for op=Average alone")
    if num_groups:
        warnings.warn("num_groups is called groups now", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    names = _names(named_parameters, optimizer.param_groups)
    averager = _Averager(op, compression, backward_passes_per_step, gradient_predivide_factor, sparse_as_dense,
                         process_set)
    _register(averager, [one for group in optimizer.param_groups for one in group["params"]], names, groups)
    kind = type(type(optimizer).__name__, (_Distributed, type(optimizer)), {"__module__": __name__})
    distributed = kind.__new__(kind)
    # A scheduler made before has put a step of its own into the optimiser, which would go past ours.
    distributed.__dict__.update({key: value for key, value in optimizer.__dict__.items() if key != "step"})
    distributed.__dict__.update(_averager=averager, _parameter_names=averager.names, _synchronized=False,
                                _should_synchronize=True)
    return distributed
