"""Last pass (mode fiber): check channel discipline on the finished warp program and play one schedule.

It knows nothing of how binds were inserted. Rules, by their numbers in docs/decisions/0006: V1 one
producer weft and one consumer weft a register (one in each subpartition, where it is held for several); V2 every write
of a channel holds; V3 every datum is read, and given back (else the play stops, or a datum is left over); V4 is checked
by `heddle.ir.warp_verify`; V5 registers outside the pool are each touched by one weft, and accesses of pool registers
whose writes do not all hold are ordered by tokens or barriers, as are lockstep groups (`channel_order`); V7 both sides
skip the same data, V8 channels are at rest at the end: by the play.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heddle.errors import SourceLocation, UserError
from heddle.ir.warp import WarpProgram
from heddle.ir.warp_fiber import SUBPARTITIONS
from heddle.ir.warp_verify import verify
from heddle.machine.spec import Machine
from heddle.passes.channel_game import Game, Place, Weft, name_of

KEPT = 8
_RIGHT: dict[tuple[Any, ...], bool] = {}
"""Programs that were found right: those of a kernel differ in the number of their items only."""


@dataclass(frozen=True, slots=True)
class VerifyChannels:
    """Raise UserError where a channel is used against the rules, or the wefts wait for each other for ever."""

    def run(self, program: WarpProgram, machine: Machine) -> WarpProgram:
        """Check the program and return it unchanged."""
        verify(program, machine)
        _private(program)
        if not any(instruction.bind for instruction in program.instructions):
            return program  # barriers order it
        game = Game(program)
        question = (game.question, _rows(program))
        if question not in _RIGHT and _played(program, game) is game:  # else items decided that are not in the question
            while len(_RIGHT) >= KEPT:
                del _RIGHT[next(iter(_RIGHT))]
            _RIGHT[question] = True
        return program


def _played(program: WarpProgram, game: Game) -> Game:
    """Play and raise UserError where a rule is broken; return the game that decided, perhaps one with every item."""
    ended = game.play()
    if game.cut and not (ended and game.at_rest):  # perhaps only because items are left out that others count on
        game = Game(program, every_item=True)
        ended = game.play()
    _ordered(program, game)
    _one_weft(program, game, game.writers, "written")
    for readers in _readers(game):
        _one_weft(program, game, readers, "read")
    for pc, place in game.misread:
        raise UserError(
            f"{program.instructions[pc].op} gives back {name_of(place)}, which is not held for its subpartition",
            where=_line(program, pc),
            hint="a tensor that all subpartitions read is read by four wefts, one in each",
        )
    if not ended:
        raise _stuck(program, game)
    _one_order_of_groups(program, game)
    for place, bits in game.bits.items():
        if bits.full:
            raise UserError(
                f"{name_of(place)} is written and never given back",
                where=_line(program, bits.written_pc),
                hint='state the tensor "empty" behind its last read',
            )
    return game


def _rows(program: WarpProgram) -> tuple[Any, ...]:
    """Return what decides a play beside the items: the same for all batches of a problem."""
    return program.instructions, program.roles, program.rings, program.barriers, program.fiber, program.cluster_size


def _readers(game: Game) -> Iterator[dict[Place, dict[int, int]]]:
    """Yield the wefts among which there may be one reader of a register: all, or those of a subpartition."""
    yield {place: wefts for place, wefts in game.consumers.items() if place not in game.shared}
    for home in range(SUBPARTITIONS):
        yield {
            place: {weft: pc for weft, pc in game.consumers[place].items() if weft % SUBPARTITIONS == home}
            for place in game.shared
            if place in game.consumers
        }


def _line(program: WarpProgram, pc: int) -> SourceLocation:
    source = program.sources[program.instructions[pc].source]
    return SourceLocation(source.file, source.line)


def _private(program: WarpProgram) -> None:
    """V5: a register outside the pool belongs to one weft, so no bit has to order it."""
    game, owners = Game(program), dict[Place, Weft]()
    for weft in game.wefts:
        starts = [role.entry for role in program.roles if role.entry > weft.role.entry]
        for pc in range(weft.role.entry, min(starts, default=len(program.instructions))):
            instruction = program.instructions[pc]
            for register in (instruction.dst, *instruction.src):
                for place in weft.place(register) if register is not None else []:
                    owner = weft if game.has_bits(place) else owners.setdefault(place, weft)
                    if owner is not weft:
                        raise UserError(
                            f"{name_of(place)} is touched by wefts {owner.number} and {weft.number}; outside the pool "
                            "nothing orders them",
                            where=_line(program, pc),
                        )


def _ordered(program: WarpProgram, game: Game) -> None:
    """V2 and V5: what bits alone do not order, tokens or barriers do."""
    for pc, other, place in game.order.races:
        raise UserError(
            f"{program.instructions[pc].op} and {program.instructions[other].op} at {_line(program, other)} touch "
            f"{name_of(place)}, which is not always held, in either order",
            where=_line(program, pc),
            hint='state the tensor "full" behind its last write, or let a token follow the earlier access',
        )


def _one_order_of_groups(program: WarpProgram, game: Game) -> None:
    """Lockstep instructions wait for their partners inside the queues: another order elsewhere is a deadlock."""
    for pc, other in game.order.unordered:
        raise UserError(
            f"{program.instructions[pc].op} and {program.instructions[other].op} at {_line(program, other)} are "
            "lockstep instructions of different groups of wefts, and nothing makes their order the same in all "
            "subpartitions",
            where=_line(program, pc),
            hint="let the groups take turns by tokens",
        )
    teams = game.order.teams()
    if any(other != teams[0] for other in teams):
        raise UserError("lockstep instructions come in different orders in different subpartitions")


def _one_weft(program: WarpProgram, game: Game, uses: Mapping[Place, Mapping[int, int]], verb: str) -> None:
    """V1, for registers that bits alone order."""
    for place, wefts in uses.items():
        if len(wefts) > 1 and place[1] not in game.order.tiles:
            (one, first), (other, second) = list(wefts.items())[:2]
            raise UserError(
                f"{name_of(place)} is {verb} by weft {one} (at {_line(program, first)}) and by weft {other}; a channel "
                "has one producer and one consumer",
                where=_line(program, second),
            )


def _stuck(program: WarpProgram, game: Game) -> UserError:
    waiting = [weft for weft in game.wefts if not weft.ended]
    lines = [
        f"weft {weft.number} ({weft.role.name}) at {_line(program, weft.pc)}: "
        f"{program.instructions[weft.pc].op} waits for {weft.waits}{_other(program, game, weft)}"
        for weft in waiting
    ]
    return UserError(
        "the wefts wait for each other for ever:\n  " + "\n  ".join(lines),
        where=_line(program, waiting[0].pc),
        hint="both sides of a channel must use it equally often, and state it full and empty each time",
    )


def _other(program: WarpProgram, game: Game, weft: Weft) -> str:
    """The last access of the other side to the register that a weft waits for."""
    instruction = program.instructions[weft.pc]
    for place in game.pool_places(weft, (instruction.dst, *instruction.src)):
        bits = game.bits.get(place)
        if bits is None:
            continue
        if bits.full and bits.written_pc >= 0:
            return f"; last written at {_line(program, bits.written_pc)}"
        if bits.empty and bits.read_pc >= 0:
            return f"; last read at {_line(program, bits.read_pc)}"
    return ""
