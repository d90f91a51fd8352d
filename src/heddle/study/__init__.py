"""Questions asked of the simulator: which tile, clock, mapping; comparison, validation, exhibits, the store."""
