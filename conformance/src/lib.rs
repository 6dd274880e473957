//! Black-box tests with real clients and peers, fault tests, benchmarks.
