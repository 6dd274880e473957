//! Messages to send.
