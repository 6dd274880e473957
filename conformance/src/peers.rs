//! Real peers that the tests and the benchmark start beside the server.
