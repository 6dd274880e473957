//! Which octets of a message a section names.

use std::ops::Range;

use posthouse_storage::message::Part;

use super::command::{FetchItem, Section};

/// Where a section's octets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located<'s> {
    /// There, as they stand.
    Octets(Range<u64>),
    /// The header in this range, after [`filter_header`].
    Fields {
        /// A whole header with its empty line.
        header: Range<u64>,
        /// Names of fields.
        fields: &'s [String],
        /// Leave these out instead of everything else.
        not: bool,
    },
    /// No such part: the answer is NIL.
    Missing,
}

/// Finds a section in the structure of a message (RFC 3501 §6.4.5).
pub fn locate<'s>(root: &Part, section: &'s Section) -> Located<'s> {
    let _ = (root, section);
    todo!()
}

/// The section that a FETCH item asks for, if it asks for octets; RFC822 is `BODY[]`, and so on.
pub fn of_item(item: &FetchItem) -> Option<&Section> {
    let _ = item;
    todo!()
}

/// A header's octets with only (or without) the named fields, in their order, folded lines whole, ended by an empty
/// line.
pub fn filter_header(header: &[u8], fields: &[String], not: bool) -> Vec<u8> {
    let _ = (header, fields, not);
    todo!()
}
