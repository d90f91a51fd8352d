"""Heddle: simulate GPU kernels on A100, H100 and B200, and the FIBER execution model.

```python
import heddle

result = heddle.run("gemm", gpu="h100", m=4096, n=4096, k=4096)
machine = heddle.machine("h100").replace(sms=144)
program = heddle.compile("gemm", machine, m=4096, n=4096, k=4096)
heddle.simulate(program, machine)
```

Names are loaded when they are first used, so that `import heddle` and `heddle --help` are quick.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heddle.machine.load import machine as machine
    from heddle.sim import simulate as simulate
    from heddle.study.api import check as check
    from heddle.study.api import compare as compare
    from heddle.study.api import compile as compile
    from heddle.study.api import run as run
    from heddle.study.results import Result as Result

_HOME = {
    "run": "heddle.study.api",
    "check": "heddle.study.api",
    "compare": "heddle.study.api",
    "compile": "heddle.study.api",
    "Result": "heddle.study.results",
    "simulate": "heddle.sim",
}

__all__ = ["Result", "check", "compare", "compile", "machine", "run", "simulate"]


class _MachinePackage(ModuleType):
    """The package `heddle.machine`, which is also the function that loads a machine."""

    def __call__(self, name_or_path: str) -> Any:
        return self.machine(name_or_path)


class _HeddlePackage(ModuleType):
    """This package: makes `heddle.machine` callable at the moment when the import system binds it here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "machine" and isinstance(value, ModuleType):
            value.__class__ = _MachinePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _HeddlePackage


def __getattr__(name: str) -> Any:
    if name == "machine":
        return importlib.import_module("heddle.machine")
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'heddle' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
