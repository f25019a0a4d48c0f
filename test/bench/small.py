# SPDX-License-Identifier: Apache-2.0
"""The rows of small vectors at the floor, and of gradients that lie on the board: prepared operations beside MPI and
beside bare flags in the same program, the call by name, vectors of a ronde::allocator beside MPI and memcpy, and messages
between two ranks. All ratios are of Ronde's time to the yardstick's."""
from programs import Series, by_contender
from report import KIB, MIB, Row, beside, no_slower, size_text

FAR_NS = 150  # two cores of one virtual machine are 45 to 120 ns from each other, or from 390 ns on


def measured(bench, ranks, *arguments, iterations):
    """The times by ronde-perf, and what a cache line took from core to core and back meanwhile, if it can tell."""
    samples = bench.programs.perf(ranks, *arguments, iterations=iterations)["samples"]
    trips = [sample[when] for sample in samples for when in ("c2c_before_ns", "c2c_after_ns") if sample.get(when)]
    return by_contender(samples, "p50_us"), Series(trips) if trips else None


def distance(name, trips):
    if trips is not None:
        cores = "far" if trips.median >= FAR_NS else "near"
        yield Row(f"  {name}: cores there and back [ns]", "", f"{cores}: {trips.median:.0f} "
                  f"({min(trips.values):.0f}..{max(trips.values):.0f})")


# Of Ronde's time to that of MPI, by ranks and size; a size without one is shown alone.
TO_MPI = {2: {8: 1.0, 4 * KIB: 1.0, 64 * KIB: 0.65}, 4: {8: 1.0, 4 * KIB: 1.0, 64 * KIB: None}}
TO_FLAGS = {(2, 8): 3.0}


def rows_prepared(bench):
    for ranks, limits in TO_MPI.items():
        who = "prepared" if ranks == 2 else f"{ranks} ranks, prepared"
        times, trips = measured(bench, ranks, "-b", "8", "-e", "64K", "-f", "512", "--prepared", "1",
                                "--against", "mpi,floor", iterations=1000)
        yield from distance(who, trips)
        for size, limit in limits.items():
            yield no_slower(f"{who}, {size_text(size)}, to MPI", times, size, "mpi", limit)
        for size in (8, 4 * KIB):
            yield no_slower(f"{who}, {size_text(size)}, to bare flags", times, size, "floor",
                            TO_FLAGS.get((ranks, size)))


def rows_by_name(bench):
    times, trips = measured(bench, 2, "-b", "8", "-e", "8", "--against", "mpi,floor", iterations=2000)
    yield from distance("by name", trips)
    yield no_slower("8 B by name, to MPI", times, 8, "mpi", 3.0)
    yield no_slower("8 B by name, to bare flags", times, 8, "floor")


def rows_preloaded(bench):
    """MPI_Allreduce in a program that knows only MPI, with and without the preloaded library, in turns."""
    loop = str(bench.programs.folder / "test/mpi_stock_loop")
    times = {"mpi": [], "ronde": []}
    for _ in range(bench.programs.repetitions):
        for name, flags in (("mpi", []), ("ronde", ["--accelerate-mpi"])):
            times[name].append(float(bench.programs.run(1, "ronderun", "-np", "2", *flags, loop, "8", "2000")))
    times = {(8, name): Series(values) for name, values in times.items()}
    yield no_slower("preloaded, 8 B, to MPI alone", times, 8, "mpi", 1.0)


def rows_board(bench):
    times, trips = measured(bench, 2, "-b", "1M", "-e", "16M", "-f", "16", "--buffer", "1",
                            "--against", "mpi,memcpy", iterations=30)
    yield from distance("on the board", trips)
    yield no_slower("on the board, 1 MiB, to MPI", times, MIB, "mpi", 0.2)
    yield no_slower("on the board, 16 MiB, to memcpy", times, 16 * MIB, "memcpy", 0.6)


def rows_messages(bench):
    """One way, half of there and back. Those by name decide nothing."""
    times = bench.programs.messages("8,4K,64K,1M,64M")
    for size in sorted({size for size, _ in times}):
        name = f"message one way, {size_text(size)}"
        yield beside(f"{name}, to MPI", times, size, "mpi")
        if size >= MIB:
            yield beside(f"{name}, to memcpy", times, size, "memcpy")
            yield beside(f"{name}, to one out of a Buffer", times, size, "ronde-buffer")
            yield beside(f"{name}, to the kernel's copy", times, size, "ronde-kernel")
    yield no_slower("8 B by a prepared pair, one way, to MPI", times, 8, "mpi", 1.5, "ronde-prepared")
