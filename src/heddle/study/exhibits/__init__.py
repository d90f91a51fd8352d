"""Tables and figures of the FIBER paper, one a file: each answers with plain data that `heddle.report` shows."""
