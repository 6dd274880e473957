//! Random work by several sessions on one mailbox. Each client believes what it is told and nothing else; whenever
//! everything may be told, what it believes must be what the account holds.

use std::collections::BTreeSet;
use std::sync::Arc;

use posthouse_storage::account::{Account, AppendItem, FlagNames, Flags, Mailbox};
use posthouse_storage::directory::Login;
use posthouse_storage::message::NewMessage;

use super::rig::{Client, USER, World};

/// A small generator of numbers, so that a seed tells everything.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % u64::from(sides.max(1))) as u32
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len() as u32) as usize]
    }
}

type FlagSet = BTreeSet<String>;

/// What a client believes about one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    /// 0 = not told yet.
    uid: u32,
    flags: FlagSet,
}

/// A client with what it believes.
struct Believer {
    client: Client,
    known: Vec<Known>,
    recent: usize,
}

impl Believer {
    async fn new(world: &World) -> Self {
        let mut believer = Self { client: world.client().await, known: Vec::new(), recent: 0 };
        believer.run("SELECT INBOX", true).await;
        believer
    }

    /// Carries out a command and believes the answers; then asks for what it does not know.
    async fn run(&mut self, command: &str, expunges: bool) {
        for line in self.client.ok(command).await {
            self.believe(&line, expunges, command);
        }
        if let Some(first) = self.known.iter().position(|known| known.uid == 0) {
            let ask = format!("FETCH {}:{} (UID FLAGS)", first + 1, self.known.len());
            for line in self.client.ok(&ask).await {
                self.believe(&line, false, &ask);
            }
        }
    }

    fn believe(&mut self, line: &str, expunges: bool, command: &str) {
        let Some(line) = line.strip_prefix("* ") else { return };
        let mut words = line.splitn(3, ' ');
        let Ok(number) = words.next().unwrap().parse::<usize>() else { return };
        match words.next().unwrap() {
            "EXISTS" => {
                assert!(number >= self.known.len(), "{command}: EXISTS {number} below {}", self.known.len());
                self.known.resize(number, Known::default());
            }
            "RECENT" => self.recent = number,
            "EXPUNGE" => {
                assert!(expunges, "{command}: EXPUNGE may not be told");
                assert!((1..=self.known.len()).contains(&number), "{command}: EXPUNGE {number}");
                self.known.remove(number - 1);
            }
            "FETCH" => {
                let items = words.next().unwrap();
                let known = &mut self.known[number - 1];
                if let Some((_, uid)) = items.split_once("UID ") {
                    let uid: u32 = uid.split([' ', ')']).next().unwrap().parse().unwrap();
                    assert!(known.uid == 0 || known.uid == uid, "{command}: the uid of {number} changed");
                    known.uid = uid;
                }
                if let Some((_, flags)) = items.split_once("FLAGS (") {
                    known.flags = words_of(flags.split(')').next().unwrap());
                }
            }
            _ => {}
        }
    }

    /// What the client itself expects of a silent STORE, before it is told anything else.
    fn expect(&mut self, chosen: &[(u32, u32)], by_uid: bool, change: &str, flags: &FlagSet) {
        for (at, known) in self.known.iter_mut().enumerate() {
            let number = if by_uid { known.uid } else { at as u32 + 1 };
            if !chosen.iter().any(|range| (range.0..=range.1).contains(&number)) {
                continue;
            }
            match change {
                "+" => known.flags.extend(flags.iter().cloned()),
                "-" => known.flags.retain(|flag| !flags.contains(flag)),
                _ => {
                    let recent = known.flags.contains("\\Recent");
                    known.flags = flags.clone();
                    if recent {
                        known.flags.insert("\\Recent".to_owned());
                    }
                }
            }
        }
    }

    /// Everything told: is it true?
    async fn check(&mut self, account: &Account) {
        self.run("NOOP", true).await;
        let state = account.current();
        let truth = truth(account, state.by_name("INBOX").unwrap()).await;
        let recent = self.known.iter().filter(|known| known.flags.contains("\\Recent")).count();
        assert_eq!(self.recent, recent, "RECENT");
        let believed: Vec<Known> = self
            .known
            .iter()
            .map(|known| {
                let flags = known.flags.iter().filter(|flag| *flag != "\\Recent").cloned().collect();
                Known { uid: known.uid, flags }
            })
            .collect();
        let differ = believed.iter().zip(&truth).find(|(believed, truth)| believed != truth);
        assert!(differ.is_none(), "believed and true: {differ:?}");
        assert_eq!(believed.len(), truth.len());
    }
}

fn words_of(text: &str) -> FlagSet {
    text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

async fn truth(account: &Account, mailbox: &Mailbox) -> Vec<Known> {
    let mut truth = Vec::new();
    for slot in mailbox.slots.iter() {
        for entry in &account.chunk(slot).await.unwrap().entries {
            let system = [
                (Flags::SEEN, "\\Seen"),
                (Flags::ANSWERED, "\\Answered"),
                (Flags::FLAGGED, "\\Flagged"),
                (Flags::DELETED, "\\Deleted"),
                (Flags::DRAFT, "\\Draft"),
            ];
            let mut flags: FlagSet = system
                .iter()
                .filter(|(flag, _)| entry.flags.contains(*flag))
                .map(|(_, name)| (*name).to_owned())
                .collect();
            for (index, keyword) in mailbox.keywords.iter().enumerate() {
                if entry.flags.contains(Flags::keyword(index)) {
                    flags.insert(keyword.to_string());
                }
            }
            truth.push(Known { uid: entry.uid.get(), flags });
        }
    }
    truth
}

/// A few numbers up to `last` as a set, and as ranges.
fn set(dice: &mut Dice, last: u32) -> (String, Vec<(u32, u32)>) {
    let mut ranges = Vec::new();
    for _ in 0..=dice.roll(3) {
        let low = 1 + dice.roll(last);
        // Mostly single messages, now and then a good part of the mailbox.
        let more = if dice.roll(12) == 0 { dice.roll(last) } else { dice.roll(4) };
        ranges.push((low, (low + more).min(last)));
    }
    let text: Vec<String> = ranges.iter().map(|(low, high)| format!("{low}:{high}")).collect();
    (text.join(","), ranges)
}

async fn step(dice: &mut Dice, believer: &mut Believer) {
    let exists = believer.known.len() as u32;
    let last_uid = believer.known.iter().map(|known| known.uid).max().unwrap_or(0);
    let by_uid = dice.roll(2) == 0;
    let prefix = if by_uid { "UID " } else { "" };
    let last = if by_uid { last_uid + 3 } else { exists };
    match dice.roll(14) {
        0 | 1 => {
            let flags = dice.of(&["", "\\Seen", "\\Flagged later"]);
            let literal = format!("APPEND INBOX ({flags}) {{4+}}\r\na:b\n");
            believer.run(&literal, true).await;
        }
        2..=6 if last > 0 => {
            let (text, ranges) = set(dice, last);
            let change = dice.of(&["+", "-", ""]);
            let silent = dice.roll(2) == 0;
            let flags = dice.of(&["\\Seen", "\\Deleted", "\\Deleted \\Answered", "urgent", "later \\Seen"]);
            if silent {
                believer.expect(&ranges, by_uid, change, &words_of(flags));
            }
            let suffix = if silent { ".SILENT" } else { "" };
            believer.run(&format!("{prefix}STORE {text} {change}FLAGS{suffix} ({flags})"), by_uid).await;
        }
        7 => believer.run("EXPUNGE", true).await,
        8 if last_uid > 0 => {
            let (text, _) = set(dice, last_uid);
            believer.run(&format!("UID EXPUNGE {text}"), true).await;
        }
        9 if last > 0 => {
            let (text, _) = set(dice, last);
            let verb = dice.of(&["COPY", "MOVE"]);
            // Within the mailbox as well: its messages get new uids.
            let target = dice.of(&["Trash", "INBOX"]);
            let text = if verb == "COPY" { text.split(',').next().unwrap() } else { &text };
            believer.run(&format!("{prefix}{verb} {text} {target}"), true).await;
        }
        10 if last > 0 => {
            let (text, _) = set(dice, last);
            let items = dice.of(&["FLAGS", "(UID RFC822.SIZE)", "(FLAGS BODY.PEEK[TEXT])"]);
            believer.run(&format!("{prefix}FETCH {text} {items}"), by_uid).await;
        }
        11 if exists > 0 => {
            // Sets \Seen on the way.
            let one = 1 + dice.roll(exists);
            believer.run(&format!("FETCH {one} (UID RFC822.TEXT)"), false).await;
        }
        12 => believer.run(&format!("{prefix}SEARCH UNSEEN"), by_uid).await,
        _ => believer.run("NOOP", true).await,
    }
}

async fn play(seed: u64, preloaded: usize, steps: usize) {
    let world = World::new().await;
    let Login { account, .. } =
        world.storage.directory.authenticate(USER, "secret", [127, 0, 0, 1].into()).await.unwrap();
    let account = world.storage.accounts.open(account).await.unwrap();
    let inbox = account.current().by_name("INBOX").unwrap().id;
    let message = Arc::new(NewMessage::from_octets("a: b\r\n\r\ntext\r\n"));
    let items: Vec<AppendItem> = (0..preloaded)
        .map(|at| AppendItem {
            message: Arc::clone(&message),
            flags: FlagNames { system: if at % 3 == 0 { Flags::SEEN } else { Flags::default() }, keywords: vec![] },
            received_at_ms: at as i64 * 1_000,
            email: None,
        })
        .collect();
    account.append(inbox, &items).await.unwrap();

    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut believers = Vec::new();
    for _ in 0..3 {
        believers.push(Believer::new(&world).await);
    }
    for _ in 0..steps {
        let who = dice.roll(believers.len() as u32) as usize;
        step(&mut dice, &mut believers[who]).await;
        if dice.roll(5) == 0 {
            let who = dice.roll(believers.len() as u32) as usize;
            believers[who].check(&account).await;
        }
    }
    for believer in &mut believers {
        believer.check(&account).await;
    }
}

fn seeds(range: std::ops::Range<u64>, preloaded: usize, steps: usize) {
    for seed in range {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(play(seed, preloaded, steps));
        }));
        assert!(played.is_ok(), "seed {seed} with {preloaded} messages");
    }
}

#[test]
fn every_client_believes_what_is_true() {
    seeds(0..40, 0, 150);
}

#[test]
fn every_client_believes_what_is_true_of_a_mailbox_of_several_chunks() {
    seeds(0..6, 2_500, 60);
}
