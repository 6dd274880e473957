//! From text and environment to a [`Config`], or to every mistake at once.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::mistake::{Mistake, Mistakes, nearest};
use super::schema::{Section, inline, sections};
use super::{Config, syntax, validate};

/// Where the value of a key was written; keys left at their default are not in it.
#[derive(Debug, Default)]
pub struct Places {
    file: String,
    of_keys: HashMap<(&'static str, String), String>,
}

impl Places {
    /// Where `section.key` was written, or the file when it was not.
    pub fn of(&self, section: &'static str, key: &str) -> String {
        self.of_keys.get(&(section, key.to_owned())).cloned().unwrap_or_else(|| self.file.clone())
    }

    /// True when it was written somewhere.
    pub fn written(&self, section: &'static str, key: &str) -> bool {
        self.of_keys.contains_key(&(section, key.to_owned()))
    }
}

/// The configuration of `file`, overridden by `environment`.
///
/// # Errors
/// Every mistake in both; an unreadable file is one.
pub fn from_file(
    file: &Path,
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<(Config, Places), Mistakes> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Mistakes(vec![Mistake {
            place: file.display().to_string(),
            problem: format!("cannot be read: {error}"),
            help: vec![match error.kind() {
                ErrorKind::PermissionDenied => "let the user that runs this read it".to_owned(),
                ErrorKind::InvalidData => "write it in UTF-8".to_owned(),
                _ => "name the configuration file with --config FILE".to_owned(),
            }],
        }])
    })?;
    let (mut config, places) = from_text(&file.display().to_string(), &text, environment, &Config::default())?;
    if let Some(directory) = file.parent() {
        // Path::join leaves absolute paths as they are.
        config.server.data_dir = directory.join(&config.server.data_dir);
        config.tls.certificate = config.tls.certificate.map(|path| directory.join(path));
        config.tls.key = config.tls.key.map(|path| directory.join(path));
    }
    Ok((config, places))
}

/// The configuration of `text` (called `name` in mistakes) over `base`, overridden by `environment`.
///
/// # Errors
/// Every mistake in both.
pub fn from_text(
    name: &str,
    text: &str,
    environment: impl IntoIterator<Item = (String, String)>,
    base: &Config,
) -> Result<(Config, Places), Mistakes> {
    let mut reader = Reader {
        sections: sections(),
        values: Table::try_from(base).expect("a configuration is a table of TOML values"),
        places: Places { file: name.to_owned(), ..Places::default() },
        mistakes: Vec::new(),
        whole: true,
    };
    reader.file(name, text);
    reader.environment(environment);
    let Reader { values, places, mut mistakes, whole, .. } = reader;
    let config = Config::deserialize(values).map_err(|error| {
        // Each key was checked by itself; what is left is a fault between keys, which no section has today.
        mistakes.push(Mistake { place: name.to_owned(), problem: error.message().to_owned(), help: Vec::new() });
    });
    if let Ok(config) = &config
        && whole
    {
        validate::validate(config, &places, &mut mistakes);
    }
    // The file's in the order of its lines, then the environment's.
    let line = |place: &str| -> usize {
        let behind = place.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
        behind.and_then(|line| line.split(':').next()?.parse().ok()).unwrap_or(usize::MAX)
    };
    mistakes.sort_by_key(|mistake| line(&mistake.place));
    match config {
        Ok(config) if mistakes.is_empty() => Ok((config, places)),
        _ => Err(Mistakes(mistakes)),
    }
}

struct Reader {
    sections: Vec<Section>,
    values: Table,
    places: Places,
    mistakes: Vec<Mistake>,
    /// False when a part of the file could not be read: what its keys are together is not known then.
    whole: bool,
}

impl Reader {
    fn mistake(&mut self, place: &str, problem: String, help: Vec<String>) {
        self.mistakes.push(Mistake { place: place.to_owned(), problem, help });
    }

    fn file(&mut self, name: &str, text: &str) {
        let place = |offset: usize| {
            let line = 1 + text.as_bytes().iter().take(offset).filter(|&&byte| byte == b'\n').count();
            format!("{name}:{line}")
        };
        let (document, errors) = DeTable::parse_recoverable(text);
        let fault = errors.iter().min_by_key(|error| error.span().map_or(0, |span| span.start));
        // Behind it nothing is what it seems.
        let end = match fault {
            Some(error) => {
                let offset = error.span().map_or(0, |span| span.start);
                self.mistakes.push(syntax::mistake(name, text, offset, error.message()));
                self.whole = false;
                offset
            }
            None => usize::MAX,
        };
        for (section, value) in document.into_inner() {
            if section.span().start >= end {
                continue;
            }
            let here = place(section.span().start);
            let section = section.into_inner();
            let Some(index) = self.sections.iter().position(|known| known.name == section) else {
                self.unknown_section(&here, &section, &value);
                continue;
            };
            let DeValue::Table(keys) = value.into_inner() else {
                let example = format!("[{section}]");
                self.mistake(&here, format!("`{section}` is a section"), vec![format!("write: {example}")]);
                continue;
            };
            for (key, value) in keys {
                if key.span().start >= end || value.span().end >= end {
                    continue;
                }
                let here = place(key.span().start);
                match Value::deserialize(ValueDeserializer::from(value)) {
                    Ok(value) => self.key(&here, index, &key.into_inner(), &[value]),
                    Err(_) if self.sections[index].keys.contains(&key.get_ref().as_ref()) => {
                        let problem =
                            format!("the value of `{section}.{}` is beyond what a number can be", key.get_ref());
                        let help = format!("example: {}", self.sections[index].example(key.get_ref()));
                        self.mistake(&here, problem, vec![help]);
                    }
                    Err(_) => self.key(&here, index, key.get_ref(), &[]),
                }
            }
        }
    }

    fn environment(&mut self, environment: impl IntoIterator<Item = (String, String)>) {
        let mut variables: Vec<_> =
            environment.into_iter().filter(|(name, _)| name.starts_with("POSTHOUSE_") && name.contains("__")).collect();
        variables.sort();
        for (name, text) in variables {
            let here = format!("environment {name}");
            let lower = name.to_ascii_lowercase();
            let (section, key) = lower.trim_start_matches("posthouse_").split_once("__").unwrap_or_default();
            match self.sections.iter().position(|known| known.name == section) {
                Some(index) => self.key(&here, index, key, &readings(&text)),
                None => {
                    let known: Vec<&str> = self.sections.iter().map(|known| known.name).collect();
                    let help = match nearest(section, known.iter().copied()) {
                        Some(near) => format!("did you mean {}?", format!("POSTHOUSE_{near}__{key}").to_uppercase()),
                        None => format!("the sections are {}", known.join(", ")),
                    };
                    self.mistake(&here, format!("there is no section `{section}`"), vec![help]);
                }
            }
        }
    }

    fn unknown_section(&mut self, place: &str, section: &str, value: &Spanned<DeValue<'_>>) {
        let names: Vec<&str> = self.sections.iter().map(|known| known.name).collect();
        if value.get_ref().is_table() {
            let help = match nearest(section, names.iter().copied()) {
                Some(near) => format!("did you mean [{near}]?"),
                None => format!("the sections are {}", names.join(", ")),
            };
            return self.mistake(place, format!("unknown section [{section}]"), vec![help]);
        }
        let home = self.sections.iter().find(|known| known.keys.contains(&section));
        let help = match home {
            Some(home) => format!("it belongs into section [{}]: {}", home.name, home.example(section)),
            None => format!("every key stands in a section; the sections are {}", names.join(", ")),
        };
        self.mistake(place, format!("unknown key `{section}` outside of a section"), vec![help]);
    }

    /// Takes the first of several readings of a value that fits the key.
    fn key(&mut self, place: &str, index: usize, key: &str, readings: &[Value]) {
        let section = &self.sections[index];
        if !section.keys.contains(&key) {
            let (problem, help) = self.unknown_key(section, key);
            return self.mistake(place, problem, vec![help]);
        }
        let mut refused = String::new();
        for value in readings {
            match (section.check)(key, value.clone()) {
                Ok(()) => {
                    let name = section.name;
                    let table = self.values.entry(name).or_insert_with(|| Value::Table(Table::new()));
                    if let Value::Table(table) = table {
                        table.insert(key.to_owned(), value.clone());
                    }
                    self.places.of_keys.insert((name, key.to_owned()), place.to_owned());
                    return;
                }
                Err(error) if refused.is_empty() => refused = error,
                Err(_) => {}
            }
        }
        let shown = readings.first().map(inline).unwrap_or_default();
        let mut help: Vec<String> = section.key_doc(key).into_iter().map(|doc| format!("meaning: {doc}")).collect();
        help.push(format!("example: {}", section.example(key)));
        let problem = format!("`{}.{key}` cannot be {shown}: {refused}", section.name);
        self.mistake(place, problem, help);
    }

    fn unknown_key(&self, section: &Section, key: &str) -> (String, String) {
        let problem = format!("unknown key `{key}` in [{}]", section.name);
        let elsewhere = self.sections.iter().find(|other| other.keys.contains(&key));
        let help = match (nearest(key, section.keys.iter().copied()), elsewhere) {
            (Some(near), _) => format!("did you mean `{near}`? example: {}", section.example(near)),
            (None, Some(other)) => format!("it belongs into section [{}]", other.name),
            (None, None) => format!("the keys of [{}] are {}", section.name, section.keys.join(", ")),
        };
        (problem, help)
    }
}

/// What a variable's text may stand for, in order of preference: a TOML value, a string, a list with commas.
fn readings(text: &str) -> Vec<Value> {
    let toml = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    let list = text.split(',').map(|item| Value::String(item.trim().to_owned())).filter(|v| v.as_str() != Some(""));
    toml.into_iter().chain([Value::String(text.to_owned()), Value::Array(list.collect())]).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
        let environment = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let loaded = from_text("posthouse.toml", text, environment, &Config::default());
        loaded.map(|(config, _)| config).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn nothing_is_the_defaults() {
        assert_eq!(load("", &[]).unwrap().server, Config::default().server);
    }

    #[test]
    fn the_environment_wins() {
        let text = "[server]\nhostname = \"a.test\"\nlog = \"warn\"\n[listen]\nsmtp = [\"127.0.0.1:25\"]\n";
        let environment = [
            ("POSTHOUSE_SERVER__HOSTNAME", "b.test"),
            ("POSTHOUSE_SERVER__GRACE_SECONDS", "7"),
            ("POSTHOUSE_LISTEN__IMAP", "127.0.0.1:1143,[::1]:1143"),
            ("POSTHOUSE_LISTEN__LMTP", "[\"127.0.0.1:24\"]"),
            ("POSTHOUSE_LISTEN__HTTP", ""),
            ("POSTHOUSE_TLS__CERTIFICATE", "/a b/c.pem"),
            ("POSTHOUSE_TLS__KEY", "\"/d.pem\""),
            ("POSTHOUSE_BIN", "/somewhere"),
            ("PATH", "/bin"),
        ];
        let config = load(text, &environment).unwrap();
        assert_eq!((config.server.hostname.as_str(), config.server.log.as_str()), ("b.test", "warn"));
        assert_eq!(config.server.grace_seconds, 7);
        assert_eq!(config.listen.smtp, ["127.0.0.1:25".parse().unwrap()]);
        assert_eq!(config.listen.imap, ["127.0.0.1:1143".parse().unwrap(), "[::1]:1143".parse().unwrap()]);
        assert_eq!((config.listen.lmtp.len(), config.listen.http.len()), (1, 0));
        assert_eq!(config.tls.certificate.as_deref(), Some(Path::new("/a b/c.pem")));
        assert_eq!(config.tls.key.as_deref(), Some(Path::new("/d.pem")));
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let text = r#"grace_seconds = 5
[server]
hostnme = "mail.example.org"
log = 7
log_format = "xml"
grace_seconds = -1

[listen]
smtp = ["0.0.0.0"]
lmtp = ["127.0.0.1:143"]
imap = ["127.0.0.1:143"]
imaps = ["127.0.0.1:993"]
headers_max = 3

[tsl]
key = "x"

[tls]
certificate = "/x.pem"

[http]
header_bytes_max = 10
"#;
        let environment = [
            ("POSTHOUSE_HTTP__CONNECTIONS_MAX", "many"),
            ("POSTHOUSE_HTTPS__X", "1"),
            ("POSTHOUSE_SERVER__HOSTNAME", "-no-"),
        ];
        expect![[r#"
            posthouse.toml:1: unknown key `grace_seconds` outside of a section
                it belongs into section [server]: grace_seconds = 20
            posthouse.toml:3: unknown key `hostnme` in [server]
                did you mean `hostname`? example: hostname = "localhost"
            posthouse.toml:4: `server.log` cannot be 7: expected text in quotes
                meaning: What is logged: `error`, `warn`, `info`, `debug` or `trace`, also by target, as in `info,posthouse_imap=debug`.
                example: log = "info"
            posthouse.toml:5: `server.log_format` cannot be "xml": expected `text` or `json`
                meaning: How a log line looks on standard error: `text` for people, `json` for machines.
                example: log_format = "text"
            posthouse.toml:6: `server.grace_seconds` cannot be -1: expected a whole number, 0 or more
                meaning: Seconds that the commands being carried out have to finish at shutdown; then connections are cut.
                example: grace_seconds = 20
            posthouse.toml:9: `listen.smtp` cannot be ["0.0.0.0"]: expected an address with a port in quotes, as "0.0.0.0:25" or "[::1]:25"
                meaning: Mail from other servers (SMTP, STARTTLS when a certificate is configured).
                example: smtp = ["0.0.0.0:25"]
            posthouse.toml:11: `listen.imap` has 127.0.0.1:143, which `listen.lmtp` has already
                give each role an address or a port of its own
            posthouse.toml:13: unknown key `headers_max` in [listen]
                it belongs into section [http]
            posthouse.toml:15: unknown section [tsl]
                did you mean [tls]?
            posthouse.toml:19: `tls.certificate` is set without `tls.key`
                set both, or neither
            posthouse.toml:22: `http.header_bytes_max` cannot be 10: at least 8192
                example: header_bytes_max = 8192
            environment POSTHOUSE_HTTPS__X: there is no section `https`
                did you mean POSTHOUSE_HTTP__X?
            environment POSTHOUSE_HTTP__CONNECTIONS_MAX: `http.connections_max` cannot be "many": expected a whole number, 0 or more
                meaning: Connections served at one moment, all HTTP listeners together. One more is closed at once, and counted.
                example: connections_max = 1000
            environment POSTHOUSE_SERVER__HOSTNAME: `server.hostname` cannot be "-no-": not a host name
                letters, digits, `-` and `.`, at most 253 characters; example: hostname = "mail.example.org"
            14 mistakes in the configuration"#]].assert_eq(&load(text, &environment).unwrap_err());
    }

    /// Each text has one mistake, which is told once.
    #[test]
    fn one_mistake_is_told_once() {
        let cases = [
            (
                "[server]\nlog = \"info\nhostname = \"x\"\n[server]\n",
                "posthouse.toml:2:12",
                "text ends on its own line",
            ),
            ("[server]\nhostname = mail.example.org\n", "posthouse.toml:2:12", "text stands in quotes"),
            ("[server]\nhostname = \n", "posthouse.toml:2:12", "text stands in quotes"),
            ("[server]\nhostname \"x\"\n", "posthouse.toml:2:10", "write: key = value"),
            ("[server]\nhostname: \"x\"\n", "posthouse.toml:2:", "write: key = value"),
            ("[server]\nhost name = \"x\"\n", "posthouse.toml:2:", "write: key = value"),
            ("[server\nhostname = \"x\"\n", "posthouse.toml:1:8", "in brackets: [server]"),
            ("[listen]\nsmtp = [\"0.0.0.0:25\"\nimap = []\n", "posthouse.toml:3:", "may be missing above"),
            ("[listen]\nsmtp = [\"a:1\", b:2]\n", "posthouse.toml:2:", "text stands in quotes"),
            ("[listen]\nsmtp = \"0.0.0.0:25\", \"x\"\n", "posthouse.toml:2:20", "several values are a list"),
            ("[server]\nlog = \"warn\"\nlog = \"info\"\n", "posthouse.toml:3:1", "stands once"),
            ("[server]\nlog = \"info\"\n[server]\n", "posthouse.toml:3:2", "stands once"),
            ("[server]\ngrace_seconds = 020\n", "posthouse.toml:2:17", "without zeros"),
            ("[server]\ngrace_seconds = 20s\n", "posthouse.toml:2:17", "text stands in quotes"),
            ("[server]\nlog = True\n", "posthouse.toml:2:7", "in small letters"),
            ("[server]\nlog = 'it's'\n", "posthouse.toml:2:", "one key stands on a line"),
            ("[server]\ndata_dir = \"C:\\mail\"\n", "posthouse.toml:2:", "is written \\\\"),
            ("[tls]\nkey = key.pem\ncertificate = \"cert.pem\"\n", "posthouse.toml:2:7", "text stands in quotes"),
            ("[smtp]\nerrors_max = 99999999999999999999\n", "posthouse.toml:2", "beyond what a number can be"),
            ("[smtp]\nerror_max = 99999999999999999999\n", "posthouse.toml:2", "did you mean `errors_max`?"),
            ("[server]\nlog = [\"x\"]\n", "posthouse.toml:2", "expected text in quotes"),
            ("[server]\nlog = true\n", "posthouse.toml:2", "expected text in quotes"),
            ("[server]\ndata_dir = 5\n", "posthouse.toml:2", "expected text in quotes"),
            ("[server]\ndata_dir = \"\"\n", "posthouse.toml:2", "is empty"),
            ("[server]\ngrace_seconds = 1.5\n", "posthouse.toml:2", "expected a whole number, 0 or more"),
            ("[smtp]\nmessage_bytes_max = \"25M\"\n", "posthouse.toml:2", "expected a whole number, 0 or more"),
            ("[listen]\nsmtp = \"0.0.0.0:25\"\n", "posthouse.toml:2", "expected a list in brackets"),
            ("[listen]\nsmtp = 25\n", "posthouse.toml:2", "expected a list in brackets"),
            ("[listen]\nsmtp = [25]\n", "posthouse.toml:2", "expected an address with a port in quotes"),
            ("[listen]\nsmtp = [\"localhost:25\"]\n", "posthouse.toml:2", "expected an address with a port in quotes"),
            ("server = 1\n", "posthouse.toml:1", "write: [server]"),
            ("[[server]]\n", "posthouse.toml:1", "write: [server]"),
            ("[server.smtp]\nx = 1\n", "posthouse.toml:1", "unknown key `smtp` in [server]"),
        ];
        for (text, place, help) in cases {
            let error = load(text, &[]).unwrap_err();
            assert!(error.starts_with(place) && error.contains(help), "{text:?}: {place}, {help:?} in {error}");
            assert!(error.ends_with("\n1 mistake in the configuration"), "{text:?}: {error}");
            for raw in ["invalid type", "invalid value", "sequence", "u64", "usize", "i128"] {
                assert!(!error.contains(raw), "{raw:?} in {error}");
            }
        }
    }

    #[test]
    fn what_stands_before_the_fault_is_told_too() {
        let text = "[server]\nhostnme = \"ü\"\nlog = \"ä\" \"b\"\n[http]\nheaders_max = 0\n[nothing]\n";
        expect![[r#"
            posthouse.toml:2: unknown key `hostnme` in [server]
                did you mean `hostname`? example: hostname = "localhost"
            posthouse.toml:3:11: not valid TOML: unexpected key or value
                log = "ä" "b"
                          ^
                one key stands on a line; several values are a list: key = ["a", "b"]
            environment POSTHOUSE_SERVER__LOGS: unknown key `logs` in [server]
                did you mean `log`? example: log = "info"
            3 mistakes in the configuration"#]]
        .assert_eq(&load(text, &[("POSTHOUSE_SERVER__LOGS", "x")]).unwrap_err());
    }

    #[test]
    fn any_text_is_an_answer_and_never_a_panic() {
        for text in [
            "\0",
            "= 1",
            "[",
            "[[server]]",
            "[server",
            "server = 1",
            "[server.x]\ny=1",
            "a.b.c = 1",
            "\u{feff}",
            "[tls]\nkey = 1979-05-27",
        ] {
            drop(load(text, &[("POSTHOUSE_", ""), ("POSTHOUSE___", "x"), ("POSTHOUSE_A__", "")]));
        }
    }
}
