//! What stands on the wire: lines, commands, paths, the text of messages, trace fields. Nothing here decides or waits.

pub mod command;
pub mod data;
pub mod line;
pub mod path;
pub mod trace;
