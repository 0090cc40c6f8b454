//! The cache of answers to requests of NFSv3 and NFSv4.0 that must not be carried out twice.
//!
//! A client that gets no answer sends the same request again, over a new connection if the old one broke. A REMOVE
//! that was carried out must then be answered as the first time, and not with "no such file". NFSv4.1 has slots
//! for this.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use parking_lot::Mutex;

/// Answers that the cache holds: each has a few hundred bytes.
const CAPACITY: usize = 2048;
/// Bytes of the largest answer that the cache holds. A request of NFSv4.0 may read data and change names at once.
const MAX_ANSWER: usize = 8 << 10;

/// What tells one request from all others of late: the client, its number, and a hash of the arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ReplayKey {
    address: IpAddr,
    xid: u32,
    hash: [u8; 16],
}

impl ReplayKey {
    pub(crate) fn new(address: SocketAddr, xid: u32, call: &[u8]) -> Self {
        let hash = blake3::hash(call);
        let hash = *hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        Self { address: address.ip(), xid, hash }
    }
}

/// What to do with a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// It is new.
    New,
    /// It is being carried out: no answer, the client will get that of the first.
    InProgress,
    /// It was carried out, with this answer.
    Answered(Vec<u8>),
}

/// The cache.
#[derive(Default)]
pub(crate) struct ReplayCache(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    /// The answer; none: the request is being carried out.
    by_key: HashMap<ReplayKey, Option<Vec<u8>>>,
    order: VecDeque<ReplayKey>,
}

impl ReplayCache {
    /// Begins a request, unless it is a repetition.
    pub(crate) fn begin(&self, key: ReplayKey) -> Turn {
        let mut answers = self.0.lock();
        match answers.by_key.get(&key) {
            Some(Some(answer)) => return Turn::Answered(answer.clone()),
            Some(None) => return Turn::InProgress,
            None => {}
        }
        if answers.order.len() >= CAPACITY
            && let Some(oldest) = answers.order.pop_front()
        {
            answers.by_key.remove(&oldest);
        }
        answers.by_key.insert(key, None);
        answers.order.push_back(key);
        Turn::New
    }

    /// Ends a request with its answer. A repetition of one with a large answer is carried out again.
    pub(crate) fn finish(&self, key: ReplayKey, answer: &[u8]) {
        let mut answers = self.0.lock();
        if answer.len() > MAX_ANSWER {
            answers.by_key.remove(&key);
            answers.order.retain(|known| *known != key);
            return;
        }
        // it may have been pushed out meanwhile
        if let Some(row) = answers.by_key.get_mut(&key) {
            *row = Some(answer.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_get_the_first_answer() {
        let cache = ReplayCache::default();
        let address = SocketAddr::from(([10, 0, 0, 1], 700));
        let key = ReplayKey::new(address, 1, b"remove x");
        assert_eq!(cache.begin(key), Turn::New);
        assert_eq!(cache.begin(key), Turn::InProgress);
        cache.finish(key, b"done");
        // the client connects again from another port
        let again = ReplayKey::new(SocketAddr::from(([10, 0, 0, 1], 701)), 1, b"remove x");
        assert_eq!(cache.begin(again), Turn::Answered(b"done".to_vec()));
        let others = [
            ReplayKey::new(address, 2, b"remove x"),
            ReplayKey::new(address, 1, b"remove y"),
            ReplayKey::new(SocketAddr::from(([10, 0, 0, 2], 700)), 1, b"remove x"),
        ];
        for other in others {
            assert_eq!(cache.begin(other), Turn::New);
        }
        let large = ReplayKey::new(address, 3, b"read and remove");
        assert_eq!(cache.begin(large), Turn::New);
        cache.finish(large, &[0; MAX_ANSWER + 1]);
        assert_eq!(cache.begin(large), Turn::New);
        for xid in 100..100 + u32::try_from(CAPACITY).unwrap() {
            cache.begin(ReplayKey::new(address, xid, b""));
        }
        assert_eq!(cache.begin(key), Turn::New);
        assert_eq!(cache.0.lock().by_key.len(), CAPACITY);
    }
}
