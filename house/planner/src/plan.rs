//! The question and its answer: one object for programs, from which reports and pictures are made.

use serde::Serialize;
use units::Ashift;

use crate::capacity::{Account, Capacity, RecordPlan, Taking, VdevPlan};
use crate::words::Words;
use crate::{Error, Mix, Rules};

/// Block sizes that every plan tells about.
pub const RECORDS: [u64; 8] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 1 << 20, 4 << 20];

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The drives, bytes each.
    pub drives: Vec<u64>,
    /// log2 of the sector.
    pub ashift: Ashift,
    /// Block sizes.
    pub records: Mix,
    /// Whether OpenZFS partitions the drives.
    pub whole_disks: bool,
    /// Whose rules the pool is made by.
    pub rules: Rules,
}

/// What a layout gives.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutPlan {
    /// The layout in zpool's words.
    pub layout: String,
    /// All drives, bytes.
    pub raw_bytes: u64,
    /// SIZE in `zpool list`, bytes.
    pub size_bytes: u64,
    /// USED + AVAIL of the empty pool's root dataset in `zfs list`, bytes.
    pub usable_bytes: u64,
    /// The same as `zfs list` shows it.
    pub usable_shown: String,
    /// The size that `df` shows; bytes, less up to a MiB that the empty pool's metadata takes.
    pub df_bytes: u64,
    /// Drives less parity and spares, as advertisements count; bytes.
    pub net_bytes: u64,
    /// What the pool keeps back, bytes.
    pub slop_bytes: u64,
    /// Part of the raw bytes that is usable.
    pub efficiency: f64,
    /// The top-level vdevs.
    pub vdevs: Vec<VdevPlan>,
    /// Where all bytes go.
    pub account: Account,
    /// What each block size makes of it.
    pub records: Vec<RecordPlan>,
    /// How much data fits with the block sizes asked for; bytes, not compressed.
    pub mix_fits_bytes: u64,
}

impl LayoutPlan {
    /// Plans one layout.
    pub fn new(question: &Question, words: &Words) -> Result<Self, Error> {
        let Question { ashift, whole_disks, rules, .. } = *question;
        let taking = Taking { ashift, whole_disks, rules };
        let capacity = Capacity::new(words, &question.drives, taking, &question.records)?;
        let fits = |record| crate::capacity::float(capacity.record(record).fits_bytes);
        let usable_bytes = capacity.account.usable_bytes;
        let raw_bytes = question.drives.iter().sum();
        Ok(Self {
            layout: words.to_string(),
            raw_bytes,
            size_bytes: capacity.size_bytes,
            usable_bytes,
            usable_shown: units::human_bytes(usable_bytes),
            df_bytes: capacity.df_bytes,
            net_bytes: capacity.net_bytes,
            slop_bytes: capacity.account.slop_bytes,
            efficiency: crate::capacity::ratio(usable_bytes, raw_bytes),
            mix_fits_bytes: crate::capacity::whole(question.records.rate(fits)),
            records: RECORDS.iter().map(|record| capacity.record(*record)).collect(),
            account: capacity.account,
            vdevs: capacity.vdevs,
        })
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// What each layout gives.
    pub layouts: Vec<LayoutPlan>,
}
