"""The FIBER-native backward pass of H100 for tests."""

from fiber_backward import SmallBackward
from heddle.kernels.attention.backward.sm90_fiber_native import SM90_FIBER_BACKWARD

SMALL = SmallBackward("h100", SM90_FIBER_BACKWARD, seqlen_q=128, seqlen_kv=128)
problem, one_sm, compiled, checked = SMALL.problem, SMALL.one_sm, SMALL.compiled, SMALL.checked
