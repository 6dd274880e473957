//! The reference page `docs/configuration.md`, made from the sections' types and doc comments.

use std::fmt::Write;

use super::schema::{inline, sections};

/// The whole page.
pub fn page() -> String {
    let mut page = String::from(
        "# Configuration reference\n\n\
         One TOML file, given with `posthouse serve --config FILE`. Every key has a default that works; leave out what you\n\
         do not need. `posthouse check-config FILE` reports every mistake at once.\n\n\
         Each key can also come from the environment, which wins over the file: `POSTHOUSE_`, the section, two underscores,\n\
         the key, all upper case. Values are written as in TOML; strings need no quotes, lists may be written with commas:\n\
         `POSTHOUSE_LISTEN__SMTP=0.0.0.0:25,[::1]:25`.\n\n\
         This page is generated from the program (`posthouse config-reference`); a test keeps it fresh.\n",
    );
    for section in sections() {
        let _infallible = write!(page, "\n## [{}]\n\n{}\n", section.name, section.doc());
        for key in section.keys {
            let doc = section.key_doc(key).unwrap_or_default();
            let default = match section.defaults.get(*key) {
                Some(value) => format!("`{}`", inline(value)),
                None => "not set".to_owned(),
            };
            let variable = section.variable(key);
            let _infallible =
                write!(page, "\n### `{key}`\n\n{doc}\n\nDefault: {default}. Environment: `{variable}`.\n");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == super::page(), "run `posthouse config-reference > docs/configuration.md`");
    }
}
