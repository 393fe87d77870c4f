"""Speed and memory, as ratios to something measured in the same run (``make bench``). Never a timed test."""
