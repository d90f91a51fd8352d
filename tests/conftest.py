"""Fixtures for all tests: a result cache of their own, and the folder of shared facts where it exists."""

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"

# Before any test imports heddle: results of an earlier engine must not answer for this one, nor land in the user's
# cache.
if "HEDDLE_CACHE" not in os.environ:
    os.environ["HEDDLE_CACHE"] = tempfile.mkdtemp(prefix="heddle-tests-")
    atexit.register(shutil.rmtree, os.environ["HEDDLE_CACHE"], ignore_errors=True)
# The same examples each time: whether a change is accepted must not depend on luck. `make slow` draws new ones
# (profile `default`).
settings.register_profile("steady", derandomize=True)

os.environ["NO_COLOR"] = "1"
os.environ["COLUMNS"] = "160"


def pytest_collection_finish() -> None:
    """Look for cycles of garbage seldom, as the command line does, and not among what collection has made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture
def result_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test an empty result cache."""
    monkeypatch.setenv("HEDDLE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder with the design and the facts; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not here: it holds the full case list and is no part of the project")
    return SHARED
