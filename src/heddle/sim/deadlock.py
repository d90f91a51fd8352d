"""x"""
from __future__ import annotations
def why(sim, warp): return ""
def report(sim): return "deadlock"
