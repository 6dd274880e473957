//! The HTTP front: metrics and health.
