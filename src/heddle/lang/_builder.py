"""The builder that a kernel function receives, and the `kernel` decorator that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from heddle.errors import UserError, unknown_name
from heddle.ir import tile
from heddle.ir.dtypes import dtype_bytes
from heddle.ir.warp import Tensor
from heddle.ir.warp_fiber import SUBPARTITIONS
from heddle.lang._fiber import FiberOps, PoolHandle, Token
from heddle.lang._handles import Declarations, GlobalHandle, RegisterHandle, SharedHandle, TensorMemoryHandle
from heddle.lang._index import Index
from heddle.lang._sync import Barrier, Ring
from heddle.lang._where import caller

DIMENSIONS = (2, 3)
"""Dimensions of a tensor: [rows, cols] or [planes, rows, cols]."""
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
TOKEN_SHAPES = {"sm_80": (64, 8, "fp8_e4m3"), "sm_90": (64, 8, "fp8_e4m3"), "sm_100": (128, 1, "fp32")}
"""Rows, columns and type of a tensor that takes one register of each subpartition, by architecture."""


DIVISIONS = ((SUBPARTITIONS, 1), (1, SUBPARTITIONS), (2, 1), (1, 2), (1, 1))
"""Wefts along rows and columns that a pool tensor may be divided among; all but the first two where all read it."""


class Builder(FiberOps):
    """Declares tiles and barriers and records the operations of the roles."""

    def __init__(self, name: str, architecture: str) -> None:
        super().__init__()
        self.name, self.architecture = name, architecture
        self.flops = 0
        self.cluster_size = 1
        self.params: dict[str, int | float | str] = {}
        self._declared = Declarations()

    @property
    def cta_rank(self) -> Index:
        """The rank of the CTA in its cluster, for references: `A[item.row + k.cta_rank * 128, 0]`."""
        return Index(rank_step=1)

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        role: Literal["input", "output", "workspace"] = "input",
    ) -> GlobalHandle:
        """Declare a tensor in global memory, [rows, cols] or [planes, rows, cols]; a workspace starts as zeros."""
        self._new(name, shape, dtype)
        if len(shape) not in DIMENSIONS:
            raise UserError(f"tensor {name!r} has {len(shape)} dimensions; two or three are possible", where=caller())
        tensor = Tensor(name=name, shape=shape, dtype=dtype, role=role)
        self._declared.tensors.append(tensor)
        return GlobalHandle(tensor)

    def shared(
        self,
        name: str,
        shape: tuple[int, int],
        dtype: str,
        *,
        stages: int = 1,
        swizzle_bytes: int = 128,
        overlays: SharedHandle | None = None,
    ) -> SharedHandle:
        """Declare a tile in shared memory with `stages` copies; `overlays`: in the first stages of another tile."""
        self._new(name, shape, dtype, stages)
        declared = tile.SharedTile(
            name=name,
            rows=shape[0],
            cols=shape[1],
            dtype=dtype,
            stages=stages,
            swizzle_bytes=swizzle_bytes,
            overlays=overlays.tile.name if overlays else None,
        )
        self._declared.shared.append(declared)
        return SharedHandle(declared)

    def registers(
        self,
        name: str,
        shape: tuple[int, int],
        dtype: str,
        *,
        warps: tuple[int, int],
        spread: Literal["fragments", "rows", "columns", "first", "second", "summed"] = "fragments",
        row_lanes: int = 32,
        overlays: RegisterHandle | None = None,
    ) -> RegisterHandle:
        """Declare a tile in registers, spread over `warps` = (along rows, along columns) of the role that uses it.

        As matrix fragments; or, with `spread="rows"`, whole rows to each warp, which has each over `row_lanes` (8, 16
        or 32) of its lanes, for kernels without products. Such a tile of one row is a row vector: every warp has a
        copy. `spread="columns"` is a row vector beside fragments, or beside rows in lanes (sm_100), loaded from shared
        memory: a source for all rows of as many columns. "second" (sm_80): a second operand [k, n] of
        products, or what it is made of; each warp has the columns that it has of the product. "first": the first
        operand [m, k] beside it. "summed" (mode fiber): packed weights, divided along k. `overlays`: it takes registers
        of another tile, from which it is made by `cast_regrouped` alone, or, being of 16 bits, by `cast`, columns in
        ascending order.
        """
        self._new(name, shape, dtype)
        declared = tile.RegisterTile(
            name=name,
            rows=shape[0],
            cols=shape[1],
            dtype=dtype,
            warp_grid=warps,
            spread=spread,
            row_lanes=row_lanes,
            overlays=overlays.tile.name if overlays else None,
        )
        self._declared.registers.append(declared)
        return RegisterHandle(declared)

    def pool(
        self,
        name: str,
        shape: tuple[int, int],
        dtype: str,
        *,
        stages: int = 1,
        read_by: Literal["own", "all"] = "own",
        wefts: tuple[int, int] = (SUBPARTITIONS, 1),
        spread: Literal["fragments", "columns", "rows", "operand"] = "fragments",
        row_lanes: int = 32,
    ) -> PoolHandle:
        """Declare a tensor in shared vector registers, which every weft can read (mode fiber), as a ring of `stages`.

        Quarter q of its rows lies in subpartition q, where weft q of the role that produces it writes it. `read_by`:
        each weft of the role that reads it reads its own quarter; or "all": wefts read any quarter, up to one weft in
        each subpartition, of one role or several, as second operand of products or as `t[i].quarter(q)`. `wefts` =
        (1, 4) divides along columns; such a tensor of their own wefts take as transposed first operand (sm_80). What
        all read may also be divided among two wefts, (2, 1) or (1, 2); (1, 1) lies with one weft, and may be the first
        operand of the products of another. Its parts lie where the wefts of the role that writes it run.
        `spread="columns"`: a vector of one row beside fragments (see `registers`): read by all, divided among four
        wefts along its columns; or read by own, whole in every subpartition. "rows", `row_lanes`: as of `registers`,
        for kernels without products. "operand" (sm_80): an
        operand [rows, k] of products whose wefts find both in their own subpartition; `wefts` = (4, 1): each has its
        quarter of the rows, (1, 4): each has a copy of all.
        """
        self._new(name, shape, dtype, stages)
        if read_by not in ("own", "all"):
            raise unknown_name("reader", read_by, ("own", "all"), caller())
        if wefts not in (DIVISIONS if read_by == "all" else DIVISIONS[:2]):
            raise UserError(
                f"pool tensor {name!r} is divided among {wefts[0]} x {wefts[1]} wefts",
                where=caller(),
                hint=f"wefts={DIVISIONS[0]} or {DIVISIONS[1]}, or where all subpartitions read it "
                f"{', '.join(map(str, DIVISIONS[2:]))}: as many as the role that writes it has",
            )
        if spread == "columns":
            self._check_vector(name, (read_by, wefts))
        handles = []
        for stage in range(stages):
            of_stage = name if stages == 1 else f"{name}_{stage}"
            if stages > 1:
                self._declared.claim(of_stage)
            declared = tile.RegisterTile(
                name=of_stage,
                rows=shape[0],
                cols=shape[1],
                dtype=dtype,
                warp_grid=wefts,
                read_by=read_by,
                spread=spread,
                row_lanes=row_lanes,
            )
            self._declared.pool.append(declared)
            handles.append(RegisterHandle(declared))
        return PoolHandle(tuple(handles))

    def _check_vector(self, name: str, division: tuple[str, tuple[int, int]]) -> None:
        """A row vector beside fragments is divided along its columns, or whole in every subpartition."""
        if division not in (("all", (1, SUBPARTITIONS)), ("own", (SUBPARTITIONS, 1))) or self.architecture == "sm_100":
            raise UserError(
                f"pool tensor {name!r} is spread by columns; all read such a vector, divided among four wefts, or each "
                "of four wefts has all of it (sm_80, sm_90)",
                where=caller(),
                hint=f'declare it with read_by="all", wefts=(1, {SUBPARTITIONS}), or with read_by="own"',
            )

    def token(self, name: str) -> Token:
        """Declare a token between two roles (mode fiber): one register of the pool in each subpartition.

        Weft by weft: what weft q of the giving role has done comes before what weft q of the taking role does.
        """
        rows, cols, dtype = TOKEN_SHAPES[self.architecture]
        return Token(self, self.pool(name, (rows, cols), dtype)[0])

    def tensor_memory(
        self,
        name: str,
        shape: tuple[int, int],
        dtype: str,
        *,
        stages: int = 1,
        overlays: TensorMemoryHandle | None = None,
        overlay_col: int = 0,
    ) -> TensorMemoryHandle:
        """Declare a tile in tensor memory (sm_100) with `stages` copies.

        `overlays`: it uses the columns of another tile again, from 32-bit column `overlay_col` of each stage on.
        """
        self._new(name, shape, dtype, stages)
        if self.architecture != "sm_100":
            raise UserError(f"{self.architecture} has no tensor memory", where=caller())
        declared = tile.TensorMemoryTile(
            name=name,
            rows=shape[0],
            cols=shape[1],
            dtype=dtype,
            stages=stages,
            overlays=overlays.tile.name if overlays else None,
            overlay_col=overlay_col,
        )
        self._declared.tensor_memory.append(declared)
        return TensorMemoryHandle(declared)

    def ring(self, name: str, depth: int) -> Ring:
        """Declare a ring of `depth` stages; every warp has its own position in it."""
        self._new(name, (depth, 1), "int32")
        self._declared.rings.append(tile.RingDecl(name=name, depth=depth))
        return Ring(ring=name, depth=depth, builder=self)

    def barrier(self, name: str, *, arrivals: int, stages: int = 1) -> Barrier:
        """Declare `stages` mbarriers, each complete after `arrivals` arrivals and all expected bytes."""
        self._new(name, (arrivals, stages), "int32")
        declared = tile.Mbarrier(name=name, count=stages, arrivals=arrivals)
        self._declared.barriers.append(declared)
        return Barrier(self, declared)

    def _new(self, name: str, sizes: tuple[int, ...], dtype: str, stages: int = 1) -> None:
        self._declared.claim(name)
        dtype_bytes(dtype, caller())
        if min(*sizes, stages) < 1:
            raise UserError(f"{name!r} needs sizes of 1 or more, got {sizes} in {stages} stages", where=caller())

    def finish(self) -> tile.TileProgram:
        """Return the program; raises UserError if a loop was left early or no role or work was declared."""
        self._check_left()
        self._check_wefts()
        where = caller()
        if not self._roles or self._work is None:
            missing = "a role" if not self._roles else "work items"
            raise UserError(f"kernel {self.name!r} declares no {missing.removeprefix('a ')}", where=where)
        declared = self._declared
        return tile.TileProgram(
            name=self.name,
            architecture=self.architecture,
            tensors=tuple(declared.tensors),
            shared=tuple(declared.shared),
            registers=tuple(declared.registers),
            pool=tuple(declared.pool),
            tensor_memory=tuple(declared.tensor_memory),
            barriers=tuple(declared.barriers),
            rings=tuple(declared.rings),
            roles=tuple(self._roles),
            work=self._work,
            cluster_size=self.cluster_size,
            flops=self.flops,
            mode=self.mode,
            params=dict(self.params),
        )


class KernelFunction:
    """A function decorated with `kernel`: `build` runs it and returns its tile program."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def build(
        self, architecture: str, *args: Any, params: Mapping[str, int | float | str] | None = None, **kwargs: Any
    ) -> tile.TileProgram:
        """Run the function for an architecture (sm_80, sm_90, sm_100) and return the verified tile program."""
        from heddle.ir.tile_verify import verify

        if architecture not in ARCHITECTURES:
            raise unknown_name("architecture", architecture, ARCHITECTURES, caller())
        builder = Builder(self.__name__, architecture)
        builder.params.update(params or {})
        self._function(builder, *args, **kwargs)
        program = builder.finish()
        verify(program)
        return program

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise UserError(
            f"kernel {self.__name__!r} is built, not called",
            where=caller(),
            hint=f'write {self.__name__}.build("sm_90", ...)',
        )


def kernel(function: Callable[..., None]) -> KernelFunction:
    """Turn a function of a `Builder` (and anything else) into a kernel."""
    return KernelFunction(function)
