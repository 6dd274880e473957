//! What stands on the wire: lines, commands, paths, the text of messages, headers, trace fields. Nothing here decides or waits.

pub mod command;
pub mod data;
pub mod header;
pub mod line;
pub mod path;
pub mod trace;
