//! A pool in memory: blocks by address, and writers for the few structures that lead to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dmu::Objset;
use ondisk::{Blkptr, Order};
use units::{ObjsetId, Zbookmark};
use zio::{Block, Key, Source};

/// Blocks by their address.
#[derive(Default)]
pub(crate) struct Pool {
    pub(crate) blocks: Mutex<HashMap<u64, Vec<u8>>>,
    pub(crate) order: Order,
    pub(crate) reads: AtomicUsize,
}

impl Source for Pool {
    fn read(&self, bp: &Blkptr, place: Zbookmark, _: Option<&Key>) -> Result<Block, zio::Error> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let lost = zio::Error::Unreadable { zbookmark: place, faults: Vec::new() };
        let Blkptr::Regular(regular) = bp else { return Err(lost) };
        let address = regular.dvas[0].map_or(0, |dva| dva.offset);
        let found = self.blocks.lock().unwrap().get(&address).cloned();
        found.map(|bytes| Block::new(bytes, self.order)).ok_or(lost)
    }
}

/// The facts that a test gives of an object; the rest follows from them.
pub(crate) struct Spec {
    pub(crate) kind: u8,
    pub(crate) levels: u8,
    pub(crate) indirect_shift: u8,
    pub(crate) block_size: u32,
    pub(crate) max_block: u64,
    pub(crate) slots: u8,
    pub(crate) bonus: Vec<u8>,
    pub(crate) roots: Vec<Vec<u8>>,
    pub(crate) spill: Option<Vec<u8>>,
}

impl Spec {
    pub(crate) fn new(kind: u8, block_size: u32, max_block: u64, roots: Vec<Vec<u8>>) -> Self {
        Self {
            kind,
            levels: 1,
            indirect_shift: 12,
            block_size,
            max_block,
            slots: 1,
            bonus: Vec::new(),
            roots,
            spill: None,
        }
    }
}

pub(crate) fn hole() -> Vec<u8> {
    vec![0; 128]
}

impl Pool {
    pub(crate) fn number(&self, bytes: &[u8]) -> Vec<u8> {
        match self.order {
            Order::Little => bytes.to_vec(),
            Order::Big => bytes.iter().rev().copied().collect(),
        }
    }

    fn encode_words(&self, words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| self.number(&word.to_le_bytes())).collect()
    }

    /// A pointer to new content, born in txg `birth`.
    pub(crate) fn pointer(&self, kind: u8, level: u8, birth: u64, bytes: &[u8]) -> Vec<u8> {
        let mut blocks = self.blocks.lock().unwrap();
        let address = (blocks.len() as u64 + 1) * (1 << 20);
        blocks.insert(address, bytes.to_vec());
        let sectors = bytes.len() as u64 / 512;
        let little = u64::from(self.order == Order::Little);
        let prop = (little << 63)
            | (u64::from(level) << 56)
            | (u64::from(kind) << 48)
            | (7 << 40)
            | (2 << 32)
            | ((sectors - 1) << 16)
            | (sectors - 1);
        let mut words = [0; 16];
        (words[0], words[1]) = (sectors, address >> 9);
        (words[6], words[10], words[11]) = (prop, birth, 1);
        self.encode_words(&words)
    }

    /// Loses the content that a pointer points to.
    pub(crate) fn lose(&self, pointer: &[u8]) {
        let mut sectors: [u8; 8] = pointer[8..16].try_into().unwrap();
        if self.order == Order::Big {
            sectors.reverse();
        }
        self.blocks.lock().unwrap().remove(&(u64::from_le_bytes(sectors) << 9)).unwrap();
    }

    /// An indirect block of 4 KiB from pointers by their slot.
    pub(crate) fn indirect(
        &self,
        kind: u8,
        level: u8,
        birth: u64,
        below: &[(usize, &[u8])],
    ) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        for (slot, pointer) in below {
            bytes[slot * 128..][..128].copy_from_slice(pointer);
        }
        self.pointer(kind, level, birth, &bytes)
    }

    /// A dnode.
    pub(crate) fn dnode(&self, spec: &Spec) -> Vec<u8> {
        let size = usize::from(spec.slots) * 512;
        let count = u8::try_from(spec.roots.len()).unwrap();
        let flags = 1 | (u8::from(spec.spill.is_some()) << 2);
        let mut out = vec![spec.kind, spec.indirect_shift, spec.levels, count, 44, 0, 0, flags];
        let sectors = u16::try_from(spec.block_size / 512).unwrap();
        out.extend(self.number(&sectors.to_le_bytes()));
        out.extend(self.number(&u16::try_from(spec.bonus.len()).unwrap().to_le_bytes()));
        out.extend([spec.slots - 1, 0, 0, 0]);
        out.extend(self.encode_words(&[spec.max_block, 4096, 0, 0, 0, 0]));
        out.extend(spec.roots.concat());
        out.extend(&spec.bonus);
        out.resize(size, 0);
        if let Some(spill) = &spec.spill {
            out.truncate(size - 128);
            out.extend(spill);
        }
        out
    }

    /// An object set whose objects are these, from number 1 on; large ones take their slots. Blocks
    /// of dnodes have 16 KiB.
    pub(crate) fn objset(self: Arc<Self>, specs: &[Spec]) -> (Objset, Vec<u64>) {
        let mut array = vec![0; 512];
        let mut numbers = Vec::new();
        for spec in specs {
            numbers.push(array.len() as u64 / 512);
            array.extend(self.dnode(spec));
        }
        array.resize(array.len().next_multiple_of(16384), 0);
        let roots: Vec<Vec<u8>> =
            array.chunks(16384).map(|block| self.pointer(10, 0, 5, block)).collect();
        let meta = Spec::new(10, 16384, roots.len() as u64 - 1, roots);
        let mut root = self.dnode(&meta);
        root.resize(704, 0);
        root.extend(self.encode_words(&[2, 7]));
        root.resize(4096, 0);
        let root = Blkptr::parse(&self.pointer(11, 0, 5, &root), self.order).unwrap();
        (Objset::open(self, ObjsetId::new(9), &root, None).unwrap(), numbers)
    }
}
