"""Is a program of mode fiber played once, whatever its batch, and anew when something changed that decides the play?"""

import dataclasses

import pytest

from heddle import pipeline
from heddle.errors import UserError
from heddle.ir.warp import WarpProgram
from heddle.machine import machine
from heddle.passes import verify_channels
from heddle.passes.channel_game import Game
from heddle.passes.verify_channels import VerifyChannels

GPU = machine("a100+fiber").replace(sms=2)
SIZES = {"heads_q": 2, "heads_kv": 2, "seqlen_q": 512, "seqlen_kv": 128, "head_dim": 64, "causal": 0}
NAMED = {**SIZES, "dtype": "fp16", "direction": "fwd"}


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the plays; nothing is kept from before."""
    counted: list[int] = []
    play = Game.play
    monkeypatch.setattr(Game, "play", lambda game: counted.append(1) or play(game))
    monkeypatch.setattr(verify_channels, "_RIGHT", {})
    monkeypatch.setattr(pipeline, "_COMPILED", {})
    return counted


def program(batch: int, **sizes: int) -> WarpProgram:
    return pipeline.compile_kernel("attention", GPU, {**NAMED, "batch": batch, **sizes}, mode="fiber")


def test_a_larger_batch_is_not_played_again(plays: list[int]) -> None:
    program(2)
    program(4)
    assert len(plays) == 1


def test_more_turns_of_a_loop_are_played(plays: list[int]) -> None:
    program(2)
    program(2, seqlen_kv=192)
    assert len(plays) == 2


def test_what_is_only_estimated_is_not_played_until_it_is_run(plays: list[int]) -> None:
    pipeline.compile_kernel("attention", GPU, {**NAMED, "batch": 2}, mode="fiber", played=False)
    assert not plays
    program(2)
    assert len(plays) == 1


def test_a_broken_program_beside_a_good_one_is_refused(plays: list[int]) -> None:
    good = program(2)
    rows = list(good.instructions)
    at = next(pc for pc, row in enumerate(rows) if row.bind and row.bind.hold)
    rows[at] = dataclasses.replace(rows[at], op="NOP", bind=None)
    for _ in range(2):
        with pytest.raises(UserError):
            VerifyChannels().run(dataclasses.replace(good, instructions=tuple(rows)), GPU)
