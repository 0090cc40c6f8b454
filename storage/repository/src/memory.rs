//! A store in memory that fails on demand: for tests of this crate and of those above.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;
use units::MinusOrZero as _;

use crate::{ObjectInfo, ObjectStore, StoreError};

/// How a store in memory fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// This many requests succeed, and all later ones fail; none: all succeed.
    pub requests_left: Option<u64>,
    /// The request that fails first is done all the same.
    pub last_request_is_done: bool,
    /// Every request of a number that this divides fails once; 0: none.
    pub failing_period: u64,
    /// The request of this number, counted from 1, has a fault; later ones succeed.
    pub single: Option<(u64, SingleFault)>,
    /// Reads return at most half of the requested bytes.
    pub cuts_reads: bool,
    /// Lists leave out this many of the newest heads.
    pub stale_heads: usize,
    /// Deletions are refused, as by object lock.
    pub refuses_deletes: bool,
}

/// The fault of a single request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SingleFault {
    /// It is refused with 503 and not done.
    Refused,
    /// It is done, and its answer is lost.
    AnswerLost,
    /// A read or list returns the first half.
    Cut,
    /// A read or list is stale: it finds nothing.
    Stale,
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    faults: Faults,
    requests: u64,
}

impl MemoryStore {
    /// Sets the failures from now on, and restarts the count of requests.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.0.lock();
        (state.faults, state.requests) = (faults, 0);
    }

    /// A store with the same objects and no faults.
    #[must_use]
    pub fn copy(&self) -> Self {
        let objects = self.0.lock().objects.clone();
        Self(Mutex::new(State { objects, ..State::default() }))
    }

    /// Requests since the faults were set.
    pub fn requests(&self) -> u64 {
        self.0.lock().requests
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    /// The bytes of all objects whose names begin with `prefix`.
    pub fn bytes(&self, prefix: &str) -> u64 {
        let state = self.0.lock();
        let sizes = state.objects.iter().filter(|(name, _)| name.starts_with(prefix));
        sizes.map(|(_, object)| object.len() as u64).sum()
    }

    /// Changes an object, as rot or a hostile store does.
    pub fn tamper(&self, name: &str, change: &mut dyn FnMut(&mut Vec<u8>)) {
        if let Some(object) = self.0.lock().objects.get_mut(name) {
            change(object);
        }
    }

    /// Removes an object.
    pub fn lose(&self, name: &str) {
        self.0.lock().objects.remove(name);
    }
}

impl State {
    /// Counts a request. Returns whether it is done, and how it fails.
    fn begin(&mut self) -> (bool, Result<(), StoreError>) {
        self.requests += 1;
        let fails = Err(StoreError::Unavailable { why: "503 Slow Down".to_owned() });
        if let Some(left) = self.faults.requests_left {
            if left == 0 {
                let is_done = std::mem::take(&mut self.faults.last_request_is_done);
                return (is_done, fails);
            }
            self.faults.requests_left = left.checked_sub(1);
        }
        match self.single_fault() {
            Some(SingleFault::Refused) => return (false, fails),
            Some(SingleFault::AnswerLost) => return (true, fails),
            _ => {}
        }
        let period = self.faults.failing_period;
        if period > 0 && self.requests.is_multiple_of(period) {
            return (false, fails);
        }
        (true, Ok(()))
    }

    /// The fault of the request that runs.
    fn single_fault(&self) -> Option<SingleFault> {
        self.faults.single.filter(|(number, _)| *number == self.requests).map(|(_, fault)| fault)
    }

    /// How many of the found bytes or names a read or list returns.
    fn returned(&self, found: usize) -> usize {
        match self.single_fault() {
            Some(SingleFault::Cut) => found / 2,
            Some(SingleFault::Stale) => 0,
            _ if self.faults.cuts_reads => found / 2,
            _ => found,
        }
    }
}

impl ObjectStore for MemoryStore {
    fn location(&self) -> String {
        "memory:".to_owned()
    }

    fn create(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let mut state = self.0.lock();
        let (is_done, result) = state.begin();
        if is_done {
            if state.objects.contains_key(name) {
                return result.and(Err(StoreError::AlreadyExists));
            }
            state.objects.insert(name.to_owned(), content.to_vec());
        }
        result
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let mut state = self.0.lock();
        state.begin().1?;
        let is_stale = state.single_fault() == Some(SingleFault::Stale);
        let object = state.objects.get(name).filter(|_| !is_stale).ok_or(StoreError::NotFound)?;
        let index = |at: u64| units::to_usize(at).min(object.len());
        let found = object.get(index(range.start)..index(range.end)).unwrap_or_default();
        Ok(found.get(..state.returned(found.len())).unwrap_or_default().to_vec())
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        let mut state = self.0.lock();
        state.begin().1?;
        let is_stale = state.single_fault() == Some(SingleFault::Stale);
        let object = state.objects.get(name).filter(|_| !is_stale).ok_or(StoreError::NotFound)?;
        Ok(object.len() as u64)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        let mut state = self.0.lock();
        state.begin().1?;
        let named = state.objects.iter().filter(|(name, _)| name.starts_with(prefix));
        let info = |(name, object): (&String, &Vec<u8>)| ObjectInfo {
            name: name.clone(),
            size: object.len() as u64,
            modified: Some(0),
        };
        let mut found: Vec<ObjectInfo> = named.map(info).collect();
        if prefix == crate::head::HEADS {
            found.truncate(found.len().minus_or_zero(state.faults.stale_heads));
        }
        if let Some(SingleFault::Cut | SingleFault::Stale) = state.single_fault() {
            found.truncate(state.returned(found.len()));
        }
        Ok(found)
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        let mut state = self.0.lock();
        let (is_done, result) = state.begin();
        if state.faults.refuses_deletes {
            return Err(StoreError::Denied { why: "object lock".to_owned() });
        }
        if is_done {
            state.objects.remove(name);
        }
        result
    }
}
