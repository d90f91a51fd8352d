"""The FIBER-native backward pass of B200 for tests."""

from fiber_backward import SmallBackward
from heddle.kernels.attention.backward.sm100_fiber_native import SM100_FIBER_BACKWARD

SMALL = SmallBackward("b200", SM100_FIBER_BACKWARD, seqlen_q=300, seqlen_kv=100)
problem, one_sm, compiled, checked = SMALL.problem, SMALL.one_sm, SMALL.compiled, SMALL.checked
