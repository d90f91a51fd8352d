"""Compile a set of functions and all that they call into one module of machine code, and call it from Python.

The machine code is kept on disk under a hash of the sources, the processor and the versions, beside the package or in
the user's cache directory. A changed source file, processor or library compiles anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from heddle.errors import InternalError
from heddle.sim.native.module import counting_text, module_text
from heddle.sim.native.profile import COUNTERS, Counts, read_profile
from heddle.sim.native.source import parameters_of, read, read_integers, symbol_of

OPTIMIZATION = 3
INLINING_THRESHOLD = 1000  # LLVM's measure; what issues an instruction has two callers, for SIMT and FIBER, and is hot


class NativeFunction:
    """A compiled function; int64 arrays are passed by address, everything else as an integer."""

    def __init__(self, engine: Any, function: FunctionType, arrays: Sequence[bool], result: bool) -> None:
        self._engine = engine  # owns the machine code
        self.address: int = engine.get_function_address(symbol_of(function))
        kinds = [ctypes.c_void_p if array else ctypes.c_int64 for array in arrays]
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64 if result else None, *kinds)(self.address)

    def __call__(self, *arguments: Any) -> Any:
        """Call it. The global interpreter lock is released meanwhile."""
        return self._call(*(_plain_argument(argument) for argument in arguments))


def _plain_argument(argument: Any) -> int:
    if isinstance(argument, np.ndarray):
        if argument.dtype != np.int64 or not argument.flags.c_contiguous:
            raise TypeError(f"an array of {argument.dtype}; compiled functions take contiguous int64")
        return int(argument.__array_interface__["data"][0])
    return int(argument)


def _target_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=OPTIMIZATION,
        reloc="pic",
        codemodel="small",  # calls within the one section of code; what is outside is called through stubs in it
    )


def compile_object(text: str, machine: Any) -> bytes:
    """Optimize LLVM text and return it as an object file."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses what the core's compiler wrote: {error}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
    # the core's loops are short: unrolled and vectorized they take longer to compile and to run
    options.loop_unrolling = options.loop_vectorization = options.loop_interleaving = False
    options.slp_vectorization = False
    options.inlining_threshold = INLINING_THRESHOLD
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


def cache_directories() -> list[Path]:
    """Return where compiled code may be kept, best first: beside the package, then the user's cache directory."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return [Path(__file__).parent / "__pycache__", Path(home) / "heddle"]


def _key(entries: Sequence[FunctionType], sources: Sequence[Path]) -> str:
    digest = hashlib.sha256(" ".join(symbol_of(entry) for entry in entries).encode())
    for path in sorted({*sources, *Path(__file__).parent.glob("*.py")}):
        digest.update(path.name.encode() + path.read_bytes())
    versions = f"{sys.version_info[:2]} {llvmlite.__version__} {llvm.get_host_cpu_name()}"
    digest.update(f"{versions} {llvm.get_host_cpu_features().flatten()}".encode())
    return digest.hexdigest()[:24]


def _load(name: str) -> bytes | None:
    for directory in cache_directories():
        try:
            return (directory / name).read_bytes()
        except OSError:
            continue
    return None


def _save(name: str, code: bytes) -> None:
    """Write atomically into the first directory that can be written; without one, compile again next time."""
    for directory in cache_directories():
        try:
            directory.mkdir(parents=True, exist_ok=True)
            temporary = directory / f"{name}.{os.getpid()}"
            temporary.write_bytes(code)
            temporary.replace(directory / name)
            return
        except OSError:
            continue


def _link(code: bytes, machine: Any) -> Any:
    """Make an object file executable; the result owns the machine code."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def build_unit(
    name: str, functions: Sequence[Callable[..., Any]], sources: Sequence[Path], profile: Path | None = None
) -> dict[str, NativeFunction]:
    """Compile Python functions, or load them from the cache, and return them by name.

    `sources` are the files whose change makes the cache stale; `profile` is a file of `native.profile`. Raises
    InternalError for what the compiler does not know.
    """
    entries = [function for function in functions if isinstance(function, FunctionType)]
    machine = _target_machine()
    file = f"{name}-{_key(entries, [*sources, *([profile] if profile else [])])}.o"
    code = _load(file)
    if code is None:
        counts = read_profile(profile) if profile else {}
        code = compile_object(module_text([read(entry) for entry in entries], counts), machine)
        _save(file, code)
    engine = _link(code, machine)
    return {entry.__name__: _native(engine, entry) for entry in entries}


def build_counting(
    functions: Sequence[Callable[..., Any]],
) -> tuple[dict[str, NativeFunction], Callable[[], list[tuple[str, str, Counts]]]]:
    """Compile Python functions so that they count their branches; return them, and what reads symbol, digest, counts.

    Slower than `build_unit`, and not kept. For the tool that writes a profile.
    """
    entries = [function for function in functions if isinstance(function, FunctionType)]
    machine = _target_machine()
    text, counted = counting_text([read(entry) for entry in entries])
    engine = _link(compile_object(text, machine), machine)
    length = max(each.first + 1 + 2 * each.branches for each in counted)
    counters = (ctypes.c_int64 * length).from_address(engine.get_global_value_address(COUNTERS))

    def counts() -> list[tuple[str, str, Counts]]:
        rows = []
        for each in counted:
            pairs = range(each.first + 1, each.first + 1 + 2 * each.branches, 2)
            branches = tuple((counters[at], counters[at + 1]) for at in pairs)
            rows.append((each.symbol, each.digest, Counts(counters[each.first], branches)))
        return rows

    return {entry.__name__: _native(engine, entry) for entry in entries}, counts


def _native(engine: Any, entry: FunctionType) -> NativeFunction:
    """Return a function of a linked unit; annotations are enough for that, so that a cached start parses nothing."""
    arrays = [array for _, array in parameters_of(entry)]
    return NativeFunction(engine, entry, arrays, entry.__annotations__.get("return") != "None")


def compile_function(function: Callable[..., int]) -> NativeFunction:
    """Compile a function of integers that returns one, without a cache; a path without a return gives -1.

    Raises InternalError for what the compiler does not know.
    """
    if not isinstance(function, FunctionType):
        raise InternalError(f"{function!r} is not a Python function")
    source = read_integers(function)
    machine = _target_machine()
    engine = _link(compile_object(module_text([source], {}), machine), machine)
    return NativeFunction(engine, function, [False] * len(source.parameters), True)
