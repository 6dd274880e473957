//! Slows guessing down, and never locks an account.
//!
//! * One peer on one account: after [`PAIR_FREE`] failures it waits, twice as long after each further one.
//! * One peer on any accounts: the same after [`PEER_FREE`], which leaves room for households and offices.
//! * One account from anywhere: after [`NAME_FREE`] failures each attempt of a stranger is delayed, up to
//!   [`DELAY_MAX`]; peers that logged in to it lately are not.
//!
//! Failures are forgotten [`WINDOW`] after the last. An IPv6 peer is its /64 (RFC 6177: what a site has at least).
//! Bounded: a full map forgets what is old, then whatever comes first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::AuthError;

const PAIR_FREE: u32 = 5;
const PEER_FREE: u32 = 30;
const NAME_FREE: u32 = 20;
const WINDOW: Duration = Duration::from_secs(15 * 60);
const WAIT_MAX: Duration = Duration::from_secs(5 * 60);
const DELAY_MAX: Duration = Duration::from_secs(2);
/// How long a peer that logged in is known.
const KNOWN: Duration = Duration::from_secs(24 * 3_600);
/// Attempts of one peer being checked or waiting.
const IN_FLIGHT_MAX: u32 = 32;
/// Attempts of all peers being checked or waiting.
const IN_FLIGHT_ALL_MAX: u32 = 1_024;
const ENTRIES_MAX: usize = 50_000;

type Key = [u8; 32];

/// What is counted as one peer.
pub(super) fn peer_key(peer: IpAddr) -> [u8; 16] {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).octets()
        }
    }
}

#[derive(Default)]
pub(super) struct Throttle {
    failures: HashMap<Key, Failures>,
    known: HashMap<Key, Instant>,
    in_flight: HashMap<Key, u32>,
    in_flight_all: u32,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Throttle {
    /// An attempt begins; gives the delay it has to wait first. Each `Ok` needs an [`Self::end`].
    pub(super) fn begin(&mut self, peer: &Key, pair: &Key, name: &Key, now: Instant) -> Result<Duration, AuthError> {
        self.check(peer, pair, now)?;
        let of_peer = self.in_flight.get(peer).copied().unwrap_or(0);
        if of_peer >= IN_FLIGHT_MAX || self.in_flight_all >= IN_FLIGHT_ALL_MAX {
            return Err(AuthError::Throttled { retry_after: Duration::from_secs(1) });
        }
        self.in_flight.insert(*peer, of_peer + 1);
        self.in_flight_all += 1;
        if self.known.get(pair).is_some_and(|last| now.duration_since(*last) < KNOWN) {
            return Ok(Duration::ZERO);
        }
        let over = self.count(name, now).saturating_sub(NAME_FREE);
        Ok((Duration::from_millis(100) * over).min(DELAY_MAX))
    }

    pub(super) fn end(&mut self, peer: &Key) {
        self.in_flight_all = self.in_flight_all.saturating_sub(1);
        if let Some(count) = self.in_flight.get_mut(peer) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(peer);
            }
        }
    }

    /// Whether this peer may try this account now.
    pub(super) fn check(&self, peer: &Key, pair: &Key, now: Instant) -> Result<(), AuthError> {
        for (key, free) in [(pair, PAIR_FREE), (peer, PEER_FREE)] {
            let Some(failures) = self.failures.get(key) else { continue };
            let Some(over) = self.count(key, now).checked_sub(free) else { continue };
            let wait = Duration::from_secs(1 << over.min(16)).min(WAIT_MAX);
            let left = (failures.last + wait).saturating_duration_since(now);
            if !left.is_zero() {
                return Err(AuthError::Throttled { retry_after: left });
            }
        }
        Ok(())
    }

    pub(super) fn failed(&mut self, peer: &Key, pair: &Key, name: &Key, now: Instant) {
        for key in [peer, pair, name] {
            let count = self.count(key, now).saturating_add(1);
            bounded(&mut self.failures, *key, Failures { count, last: now }, |failures| {
                now.duration_since(failures.last) < WINDOW
            });
        }
    }

    pub(super) fn succeeded(&mut self, peer: &Key, pair: &Key, now: Instant) {
        // The peer's failures on other accounts stay: one good account must not buy guesses at others.
        if let Some(pair) = self.failures.remove(pair)
            && let Some(of_peer) = self.failures.get_mut(peer)
        {
            of_peer.count = of_peer.count.saturating_sub(pair.count);
        }
        bounded(&mut self.known, *pair, now, |last| now.duration_since(*last) < KNOWN);
    }

    fn count(&self, key: &Key, now: Instant) -> u32 {
        let failures = self.failures.get(key).filter(|failures| now.duration_since(failures.last) < WINDOW);
        failures.map_or(0, |failures| failures.count)
    }
}

fn bounded<V>(map: &mut HashMap<Key, V>, key: Key, value: V, fresh: impl Fn(&V) -> bool) {
    if map.len() >= ENTRIES_MAX && !map.contains_key(&key) {
        map.retain(|_, value| fresh(value));
        if map.len() >= ENTRIES_MAX {
            let victims: Vec<Key> = map.keys().take(ENTRIES_MAX / 10).copied().collect();
            victims.iter().for_each(|victim| drop(map.remove(victim)));
        }
    }
    map.insert(key, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Key = [1; 32];
    const PAIR: Key = [2; 32];
    const NAME: Key = [3; 32];

    fn retry(throttle: &Throttle, peer: &Key, pair: &Key, now: Instant) -> Duration {
        match throttle.check(peer, pair, now) {
            Err(AuthError::Throttled { retry_after }) => retry_after,
            _ => Duration::ZERO,
        }
    }

    #[test]
    fn the_wait_doubles_has_an_end_and_is_forgotten() {
        let mut throttle = Throttle::default();
        let mut now = Instant::now();
        for _ in 0..PAIR_FREE - 1 {
            throttle.failed(&PEER, &PAIR, &NAME, now);
            assert_eq!(retry(&throttle, &PEER, &PAIR, now), Duration::ZERO);
        }
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            throttle.failed(&PEER, &PAIR, &NAME, now);
            let wait = retry(&throttle, &PEER, &PAIR, now);
            assert_eq!(wait, Duration::from_secs(seconds));
            assert_eq!(
                retry(&throttle, &PEER, &PAIR, now + Duration::from_millis(400)),
                wait - Duration::from_millis(400)
            );
            assert_eq!(retry(&throttle, &PEER, &[9; 32], now), Duration::ZERO, "another account");
            now += wait;
            assert_eq!(retry(&throttle, &PEER, &PAIR, now), Duration::ZERO);
        }
        throttle.failed(&PEER, &PAIR, &NAME, now + WINDOW);
        assert_eq!(retry(&throttle, &PEER, &PAIR, now + WINDOW), Duration::ZERO);
    }

    #[test]
    fn one_peer_on_many_accounts_waits_and_success_does_not_buy_guesses() {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        for account in 0..PEER_FREE as u8 {
            assert_eq!(retry(&throttle, &PEER, &[account + 10; 32], now), Duration::ZERO);
            throttle.failed(&PEER, &[account + 10; 32], &[account + 100; 32], now);
        }
        assert!(!retry(&throttle, &PEER, &[200; 32], now).is_zero());
        throttle.succeeded(&PEER, &PAIR, now);
        assert!(!retry(&throttle, &PEER, &[200; 32], now).is_zero());
        assert!(retry(&throttle, &[8; 32], &[200; 32], now).is_zero(), "another peer");
    }

    #[test]
    fn strangers_wait_for_an_account_under_attack_known_peers_do_not() {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        throttle.succeeded(&PEER, &PAIR, now);
        for peer in 0..100 {
            throttle.failed(&[peer + 50; 32], &[peer + 50; 32], &NAME, now);
        }
        let stranger = throttle.begin(&[7; 32], &[7; 32], &NAME, now).unwrap();
        assert_eq!(stranger, DELAY_MAX);
        assert_eq!(throttle.begin(&PEER, &PAIR, &NAME, now).unwrap(), Duration::ZERO);
    }

    #[test]
    fn attempts_in_flight_are_bounded_and_given_back() {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..IN_FLIGHT_MAX {
            throttle.begin(&PEER, &PAIR, &NAME, now).unwrap();
        }
        assert!(throttle.begin(&PEER, &PAIR, &NAME, now).is_err());
        throttle.begin(&[9; 32], &PAIR, &NAME, now).unwrap();
        throttle.end(&PEER);
        throttle.begin(&PEER, &PAIR, &NAME, now).unwrap();
        for _ in 0..IN_FLIGHT_MAX {
            throttle.end(&PEER);
        }
        throttle.end(&[9; 32]);
        assert!(throttle.in_flight.is_empty());
        assert_eq!(throttle.in_flight_all, 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        for number in 0..ENTRIES_MAX as u64 {
            let key = *blake3::hash(&number.to_be_bytes()).as_bytes();
            throttle.failed(&key, &PAIR, &NAME, now);
            throttle.succeeded(&key, &key, now);
        }
        assert!(throttle.failures.len() <= ENTRIES_MAX && throttle.known.len() <= ENTRIES_MAX);
    }

    #[test]
    fn peers_are_addresses_or_sixty_four_bits() {
        let same = [("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"), ("::ffff:192.0.2.1", "192.0.2.1")];
        for (a, b) in same {
            assert_eq!(peer_key(a.parse().unwrap()), peer_key(b.parse().unwrap()));
        }
        let other = [("2001:db8:1:2::1", "2001:db8:1:3::1"), ("192.0.2.1", "192.0.2.2")];
        for (a, b) in other {
            assert_ne!(peer_key(a.parse().unwrap()), peer_key(b.parse().unwrap()));
        }
    }
}
