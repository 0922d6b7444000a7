"""Real servers, started from wheels for the tests and the benchmarks."""
