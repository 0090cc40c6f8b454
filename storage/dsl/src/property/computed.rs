//! Properties that are computed from the dataset's records.

use std::collections::HashMap;

use ondisk::dsl::{Dataset as Phys, Dir as DirPhys};
use units::{ObjectId, ObjsetId};
use zap::Zap;

use super::available::available_space;
use crate::local_properties::PropertyValue;
use crate::{Dataset, DatasetKind, KeyStatus, Result};

/// Whether a property is wanted.
pub(super) type PropertyFilter<'a> = &'a dyn Fn(&str) -> bool;

const KEY_PROPERTIES: [&str; 5] =
    ["keystatus", "encryption", "keyformat", "pbkdf2iters", "encryptionroot"];
pub(super) const CONTENT_PROPERTIES: [&str; 6] =
    ["version", "normalization", "utf8only", "casesensitivity", "volsize", "volblocksize"];

/// Facts by the property's name.
#[derive(Debug, Default)]
pub(super) struct ComputedValues {
    values: HashMap<&'static str, PropertyValue>,
    /// Whether the dataset's content could not be read.
    pub(super) content_unreadable: bool,
}

impl ComputedValues {
    /// All readable facts. An unreadable one is left out, because the others are still useful.
    ///
    /// `wanted` selects the properties: expensive facts are computed only on request.
    pub(super) fn compute(
        dataset: &Dataset,
        kind: DatasetKind,
        volume: bool,
        wanted: PropertyFilter<'_>,
    ) -> Self {
        let mut facts = Self::default();
        let any = |names: &[&str]| names.iter().any(|name| wanted(name));
        facts.set_text("type", kind.name());
        facts.set_number("guid", dataset.guid().get());
        if let Some(mark) = dataset.bookmark_record() {
            facts.set_number("creation", mark.creation_time);
            facts.set_number("createtxg", mark.creation_txg.get());
            if mark.has_sizes() {
                facts.set_number("referenced", mark.referenced);
                facts.set_number("logicalreferenced", mark.uncompressed);
            }
            if wanted("redact_snaps")
                && let Ok(Some(list)) = dataset.redaction_list()
            {
                facts.set_number_list("redact_snaps", list.snaps.iter().map(|guid| guid.get()));
            }
            return facts;
        }
        if let Some(phys) = dataset.phys() {
            facts.add_record_values(dataset, phys, wanted);
            if phys.is_snapshot() {
                facts.add_snapshot_values(dataset, phys, wanted);
            } else {
                facts.add_dir_values(dataset, phys, wanted);
            }
        }
        // each part contributes the facts that it can read
        if any(&KEY_PROPERTIES) {
            let _ = facts.add_key_values(dataset);
        }
        if any(&CONTENT_PROPERTIES) {
            // parts of an incomplete receive may be missing
            facts.content_unreadable = !volume && dataset.is_inconsistent()
                || facts.add_content_values(dataset, volume).is_err();
        }
        facts
    }

    pub(super) fn get(&self, name: &str) -> Option<&PropertyValue> {
        self.values.get(name)
    }

    fn set_number(&mut self, name: &'static str, number: u64) {
        self.values.insert(name, PropertyValue::Number(number));
    }

    fn set_text(&mut self, name: &'static str, text: impl Into<String>) {
        self.values.insert(name, PropertyValue::Text(text.into()));
    }

    fn set_number_list(&mut self, name: &'static str, numbers: impl Iterator<Item = u64>) {
        let all: Vec<String> = numbers.map(|number| number.to_string()).collect();
        self.set_text(name, all.join(","));
    }

    fn add_record_values(&mut self, dataset: &Dataset, phys: &Phys, wanted: PropertyFilter<'_>) {
        self.set_number("creation", phys.creation_time);
        self.set_number("createtxg", phys.creation_txg.get());
        self.set_number("objsetid", dataset.id().map_or(0, ObjsetId::get));
        self.set_number("inconsistent", dataset.is_inconsistent().into());
        self.set_number("referenced", phys.referenced);
        self.set_number("logicalreferenced", phys.uncompressed);
        self.set_number("refcompressratio", compress_ratio(phys.uncompressed, phys.compressed));
        if wanted("written")
            && let Ok(Some(written)) = dataset.written()
        {
            self.set_number("written", written);
        }
        if wanted("redact_snaps")
            && let Ok(Some(guids)) = dataset.zap_field(Phys::REDACTED_SNAPS)
        {
            self.set_number_list("redact_snaps", guids.integers());
        }
    }

    fn add_snapshot_values(&mut self, dataset: &Dataset, phys: &Phys, wanted: PropertyFilter<'_>) {
        self.set_number("used", phys.unique);
        self.set_number("compressratio", compress_ratio(phys.uncompressed, phys.compressed));
        self.set_number("defer_destroy", phys.is_defer_destroy().into());
        if wanted("userrefs")
            && let Ok(holds) = dataset.holds()
        {
            self.set_number("userrefs", units::to_u64(holds.len()));
        }
        if wanted("clones")
            && let Ok(clones) = dataset.clones()
            && !clones.is_empty()
        {
            self.set_text("clones", clones.join(","));
        }
    }

    fn add_dir_values(&mut self, dataset: &Dataset, phys: &Phys, wanted: PropertyFilter<'_>) {
        let dir = dataset.dir();
        let record = dir.phys();
        self.set_number("used", record.used);
        self.set_number("logicalused", record.uncompressed);
        self.set_number("compressratio", compress_ratio(record.uncompressed, record.compressed));
        self.set_number("quota", record.quota);
        self.set_number("reservation", record.reserved);
        if record.has_breakdown() {
            let breakdown = record.breakdown;
            self.set_number("usedbysnapshots", breakdown.snapshots);
            self.set_number("usedbydataset", breakdown.head);
            self.set_number("usedbyrefreservation", breakdown.refreservation);
            let below = breakdown.children.saturating_add(breakdown.child_reservations);
            self.set_number("usedbychildren", below);
        }
        let limit = |name| match dataset.effective_value(name) {
            Ok(Some((PropertyValue::Number(number), _))) => number,
            _ => 0,
        };
        let (refquota, refreservation) = (limit("refquota"), limit("refreservation"));
        self.set_number("refquota", refquota);
        self.set_number("refreservation", refreservation);
        self.set_number("available", available_space(dataset, refquota, refreservation));
        debug_assert!(!phys.is_snapshot(), "a head has no space of its own");
        self.add_dir_zap_values(dataset, wanted);
        if wanted("origin")
            && let Ok(Some(origin)) = dataset.clone_origin()
        {
            self.set_text("origin", origin.name());
        }
        if wanted("receive_resume_token")
            && let Ok(Some(token)) = dataset.resume_token()
        {
            self.set_text("receive_resume_token", token);
        }
        self.set_number("mounted", 0);
    }

    fn add_dir_zap_values(&mut self, dataset: &Dataset, wanted: PropertyFilter<'_>) {
        let counts = [
            ("filesystem_count", DirPhys::FILESYSTEM_COUNT),
            ("snapshot_count", DirPhys::SNAPSHOT_COUNT),
            ("snapshots_changed", DirPhys::SNAPSHOTS_CHANGED),
        ];
        for (name, field) in counts.into_iter().filter(|(name, _)| wanted(name)) {
            let Ok(Some(value)) = dataset.dir().zap_field(field) else { continue };
            let first = value.integers().next();
            if let Some(number) = first.filter(|number| *number != 0 || name.ends_with("count")) {
                self.set_number(name, number);
            }
        }
    }

    fn add_key_values(&mut self, dataset: &Dataset) -> Result<()> {
        let Some(status) = dataset.key_status()? else { return Ok(()) };
        self.set_number("keystatus", if status == KeyStatus::Available { 2 } else { 1 });
        let Some(facts) = dataset.key_info()? else { return Ok(()) };
        self.set_number("encryption", facts.suite_code);
        let table = Zap::open(dataset.tree().mos().object(facts.record)?)?;
        if let Some(format) = table.lookup_u64(b"keyformat")? {
            self.set_number("keyformat", format);
        }
        self.set_number("pbkdf2iters", facts.iterations);
        if let Some(root) = dataset.tree().dir(facts.encryption_root) {
            self.set_text("encryptionroot", root.path());
        }
        Ok(())
    }

    /// The choices of the creation are in the dataset's content.
    fn add_content_values(&mut self, dataset: &Dataset, volume: bool) -> Result<()> {
        let objset = dataset.open_objset()?;
        if volume {
            let zap = Zap::open(objset.object(ObjectId::new(2))?)?;
            if let Some(size) = zap.lookup_u64(b"size")? {
                self.set_number("volsize", size);
            }
            let data = objset.object(ObjectId::new(1))?;
            self.set_number("volblocksize", data.block_size().into());
            return Ok(());
        }
        let master = Zap::open(objset.object(ObjectId::new(1))?)?;
        let choices = [
            ("version", "VERSION", 5),
            ("normalization", "normalization", 0),
            ("utf8only", "utf8only", 0),
            ("casesensitivity", "casesensitivity", 0),
        ];
        for (name, entry, otherwise) in choices {
            self.set_number(name, master.lookup_u64(entry.as_bytes())?.unwrap_or(otherwise));
        }
        Ok(())
    }
}

/// Hundredths; without any bytes, 1.
fn compress_ratio(uncompressed: u64, compressed: u64) -> u64 {
    let hundredfold = u128::from(uncompressed) * 100;
    let ratio = hundredfold.checked_div(u128::from(compressed)).unwrap_or(100);
    u64::try_from(ratio).unwrap_or(u64::MAX)
}
