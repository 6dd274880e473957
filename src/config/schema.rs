//! What is known about the keys: names and types from the structs that hold them, meanings from their doc comments.
//!
//! Nothing here repeats a key: a field added to a section's struct is parsed, checked, overridable and documented.

use posthouse_http::HttpConfig;
use posthouse_imap::ImapConfig;
use posthouse_smtp_in::SmtpConfig;
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toml::{Table, Value};

use super::sections::{ListenSection, ServerSection, StorageSection, TlsSection};

/// A section: a table of the TOML file.
#[derive(Debug)]
pub struct Section {
    /// Its name in the file.
    pub name: &'static str,
    /// Its keys, in order.
    pub keys: &'static [&'static str],
    /// Default values; a key that has none is missing.
    pub defaults: Table,
    /// Says what is wrong with a value for one key.
    pub check: fn(&str, Value) -> Result<(), String>,
    /// The source file and the struct that hold it: their doc comments are the reference.
    source: &'static str,
    structure: &'static str,
}

/// Every section, in the order of the reference.
pub fn sections() -> Vec<Section> {
    const OWN: &str = include_str!("sections.rs");
    const SMTP: &str = include_str!("../../smtp-in/src/config.rs");
    const IMAP: &str = include_str!("../../imap/src/config.rs");
    const HTTP: &str = include_str!("../../http/src/config.rs");
    vec![
        section::<ServerSection>("server", OWN, "ServerSection"),
        section::<ListenSection>("listen", OWN, "ListenSection"),
        section::<TlsSection>("tls", OWN, "TlsSection"),
        section::<SmtpConfig>("smtp", SMTP, "SmtpConfig"),
        section::<ImapConfig>("imap", IMAP, "ImapConfig"),
        section::<HttpConfig>("http", HTTP, "HttpConfig"),
        section::<StorageSection>("storage", OWN, "StorageSection"),
    ]
}

fn section<T>(name: &'static str, source: &'static str, structure: &'static str) -> Section
where
    T: Serialize + DeserializeOwned + Default,
{
    let defaults = Table::try_from(T::default()).expect("a section is a table of TOML values");
    Section { name, keys: fields::<T>(), defaults, check: check::<T>, source, structure }
}

fn check<T: DeserializeOwned>(key: &str, value: Value) -> Result<(), String> {
    let one = Table::from_iter([(key.to_owned(), value)]);
    T::deserialize(one).map(drop).map_err(|error| plain(error.message().trim()))
}

/// What was expected, in words: the value itself is shown beside it.
fn plain(message: &str) -> String {
    if message.contains("socket address") {
        return "expected an address with a port in quotes, as \"0.0.0.0:25\" or \"[::1]:25\"".to_owned();
    }
    let Some((_, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let expected = match expected {
        "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "a sequence" => "a list in brackets, as [\"a\", \"b\"]",
        "a string" | "path string" => "text in quotes",
        "a boolean" => "true or false",
        other => other,
    };
    format!("expected {expected}")
}

impl Section {
    /// The doc comment of the section.
    pub fn doc(&self) -> String {
        self.docs().0
    }

    /// The doc comment of one key.
    pub fn key_doc(&self, key: &str) -> Option<String> {
        self.docs().1.into_iter().find(|(name, _)| name == key).map(|(_, doc)| doc)
    }

    /// Reads the doc comments of the section's struct and of its fields from the source they are compiled from.
    fn docs(&self) -> (String, Vec<(String, String)>) {
        let opening = format!("pub struct {} {{", self.structure);
        let (mut of_struct, mut fields, mut pending, mut inside) = (String::new(), Vec::new(), Vec::new(), false);
        for line in self.source.lines().map(str::trim) {
            if let Some(doc) = line.strip_prefix("///") {
                pending.push(doc.trim());
            } else if line.starts_with("#[") {
                // Attributes stand between a doc comment and what it describes.
            } else if line == opening {
                of_struct = pending.join(" ");
                (pending, inside) = (Vec::new(), true);
            } else if inside && line == "}" {
                break;
            } else {
                if let Some((name, _)) = line.strip_prefix("pub ").and_then(|rest| rest.split_once(':'))
                    && inside
                {
                    fields.push((name.to_owned(), pending.join(" ")));
                }
                pending.clear();
            }
        }
        (of_struct, fields)
    }

    /// A line that could stand in the file: the default value, or a stand-in where there is none.
    pub fn example(&self, key: &str) -> String {
        match self.defaults.get(key) {
            Some(value) => format!("{key} = {}", inline(value)),
            None => format!("{key} = \"/etc/posthouse/{key}.pem\""),
        }
    }

    /// The environment variable that overrides a key.
    pub fn variable(&self, key: &str) -> String {
        format!("POSTHOUSE_{}__{}", self.name, key).to_ascii_uppercase()
    }
}

/// A value on one line.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(inline).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// The names serde knows a struct's fields by, without a value of it.
fn fields<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut found: &'static [&'static str] = &[];
    // The probe always answers with an error: all it wants is to be asked.
    drop(T::deserialize(Probe(&mut found)));
    found
}

struct Probe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("only a struct has fields"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(serde::de::Error::custom("seen"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_and_key_is_documented() {
        for section in sections() {
            assert!(!section.keys.is_empty(), "{} has keys", section.name);
            assert!(!section.doc().is_empty(), "[{}] says what it is", section.name);
            for key in section.keys {
                assert!(
                    section.key_doc(key).is_some_and(|doc| !doc.is_empty()),
                    "{}.{key} is documented",
                    section.name
                );
            }
        }
    }

    #[test]
    fn defaults_are_accepted() {
        for section in sections() {
            for (key, value) in &section.defaults {
                assert_eq!((section.check)(key, value.clone()), Ok(()), "{}.{key}", section.name);
            }
        }
    }
}
