"""Side-by-side speed measurements; `python -m benchmarks` prints and saves the table."""
