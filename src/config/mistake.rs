//! What is wrong with a configuration: all of it at once, each with its place, what was expected and an example.

use std::fmt;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands: `posthouse.toml:12`, or `environment POSTHOUSE_…`.
    pub place: String,
    /// What is wrong.
    pub problem: String,
    /// What was expected, and what to write instead.
    pub help: Vec<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)?;
        self.help.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// All mistakes of one configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.0 {
            writeln!(f, "{mistake}")?;
        }
        match self.0.len() {
            1 => write!(f, "1 mistake in the configuration"),
            n => write!(f, "{n} mistakes in the configuration"),
        }
    }
}

impl std::error::Error for Mistakes {}

/// The candidate nearest to `word`, if it is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|&(distance, _)| distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edit distance where a swap of neighbours counts once; case and `-` for `_` do not count.
fn distance(a: &str, b: &str) -> usize {
    let fold = |s: &str| -> Vec<char> {
        s.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).take(64).collect()
    };
    let (a, b) = (fold(a), fold(b));
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses() {
        let known = ["hostname", "data_dir", "log", "log_format", "grace_seconds"];
        for (word, found) in [
            ("hostnme", Some("hostname")),
            ("hsotname", Some("hostname")),
            ("data-dir", Some("data_dir")),
            ("Log_Format", Some("log_format")),
            ("logs", Some("log")),
            ("grace", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, known), found, "{word}");
        }
    }
}
