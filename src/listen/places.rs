//! How many connections are served at one moment, in all and for one peer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts connections. Bounded by the connections there are.
#[derive(Debug)]
pub struct Places {
    counts: Arc<Mutex<Counts>>,
    max: usize,
    per_peer_max: Option<usize>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_peer: HashMap<[u8; 8], usize>,
}

/// One connection's place; given back when dropped.
#[derive(Debug)]
pub struct Place {
    counts: Arc<Mutex<Counts>>,
    peer: Option<[u8; 8]>,
}

impl Places {
    /// So many in all, and for one peer if that is limited.
    pub fn new(max: usize, per_peer_max: Option<usize>) -> Self {
        Self { counts: Arc::default(), max, per_peer_max }
    }

    /// A place for a connection from `peer`; `None` when there is none left.
    pub fn take(&self, peer: IpAddr) -> Option<Place> {
        let peer = self.per_peer_max.and_then(|max| Some((key(peer)?, max)));
        let mut counts = lock(&self.counts);
        if counts.all >= self.max {
            return None;
        }
        if let Some((peer, max)) = peer {
            let count = counts.by_peer.get(&peer).copied().unwrap_or(0);
            if count >= max {
                return None;
            }
            counts.by_peer.insert(peer, count + 1);
        }
        counts.all += 1;
        Some(Place { counts: Arc::clone(&self.counts), peer: peer.map(|(peer, _)| peer) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        counts.all -= 1;
        if let Some(peer) = self.peer
            && let Some(count) = counts.by_peer.get_mut(&peer)
        {
            *count -= 1;
            if *count == 0 {
                counts.by_peer.remove(&peer);
            }
        }
    }
}

fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who counts as one peer: an IPv4 address or an IPv6 /64; nobody on this machine.
fn key(peer: IpAddr) -> Option<[u8; 8]> {
    let peer = peer.to_canonical();
    if peer.is_loopback() {
        return None;
    }
    let mut key = [0; 8];
    match peer {
        // 0::/8 is not routed, so no /64 looks like this.
        IpAddr::V4(peer) => key[4..].copy_from_slice(&peer.octets()),
        IpAddr::V6(peer) => key.copy_from_slice(&peer.octets()[..8]),
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_its_share_and_places_come_back() {
        let places = Places::new(5, Some(2));
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = places.take(ip("192.0.2.1")).unwrap();
        let second = places.take(ip("::ffff:192.0.2.1")).unwrap();
        assert!(places.take(ip("192.0.2.1")).is_none(), "two from one address");
        let third = places.take(ip("2001:db8::1")).unwrap();
        let fourth = places.take(ip("2001:db8::2")).unwrap();
        assert!(places.take(ip("2001:db8::3")).is_none(), "two from one /64");
        let fifth = places.take(ip("127.0.0.1")).unwrap();
        assert!(places.take(ip("127.0.0.1")).is_none(), "five in all");
        drop((first, fifth));
        let again = (places.take(ip("127.0.0.1")).unwrap(), places.take(ip("192.0.2.1")).unwrap());
        drop((second, third, fourth, again));
        assert_eq!(lock(&places.counts).all, 0);
        assert!(lock(&places.counts).by_peer.is_empty());
    }
}
