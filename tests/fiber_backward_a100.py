"""The FIBER-native backward pass of A100 for tests."""

from fiber_backward import SmallBackward
from heddle.kernels.attention.backward.sm80_fiber_native import SM80_FIBER_BACKWARD

SMALL = SmallBackward("a100", SM80_FIBER_BACKWARD, seqlen_q=96, seqlen_kv=64)
problem, one_sm, compiled, checked = SMALL.problem, SMALL.one_sm, SMALL.compiled, SMALL.checked
