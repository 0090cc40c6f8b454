//! Volumes that can be written.

use std::collections::HashMap;
use std::sync::Arc;

use dmu::Objset;
use dsl::write;
use ondisk::objset::Kind;
use spa::{Owned, Set};
use units::ObjsetId;
use zil::{Log, Records};
use zpl::Need;
use zvol::NewVolume;

use super::accounts::has;
use super::datasets::{encrypt, judge, put_all, whole_or_none};
use super::encrypt::Keying;
use super::history::note;
use super::keep::{Keeps, Manners};
use super::room::Rooms;
use super::thick::Shape;
use super::{Held, NewDataset, settings};
use crate::{Error, Result, files};

/// A volume of a held pool. Cheap to clone.
#[derive(Clone)]
pub struct LiveVolume(Arc<Inner>);

struct Inner {
    guid: u64,
    volume: zvol::LiveVolume,
    owned: Arc<Owned>,
    set: Arc<Set>,
    log: Arc<Log>,
    rooms: Rooms,
    manners: Manners,
}

/// The largest block of pools without the feature large_blocks.
const LARGEST_OF_OLD: u32 = 128 << 10;
/// What a write may take of metadata.
const SMALL: u64 = 128 << 10;

impl LiveVolume {
    /// Tells it from another that had its name before.
    pub fn guid(&self) -> u64 {
        self.0.guid
    }

    pub(super) fn id(&self) -> ObjsetId {
        self.0.set.objset.id()
    }

    /// Bytes of it.
    pub fn size(&self) -> u64 {
        self.0.volume.size()
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.0.volume.block_size()
    }

    /// Reads from byte `offset` on; gives how many bytes it were, less than asked for at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> files::Result<usize> {
        Ok(self.0.volume.read(offset, into)?)
    }

    /// Writes all of `bytes` at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> files::Result<()> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let piece = self.block_size().into();
        self.judge(Need { bytes: count.saturating_add(SMALL), piece, ..Need::default() })?;
        self.0.volume.write(offset, bytes)?;
        self.done()
    }

    /// What is in a range is of no use any more.
    pub fn discard(&self, range: std::ops::Range<u64>) -> files::Result<()> {
        self.judge(Need { frees: true, ..Need::default() })?;
        self.0.volume.discard(range)?;
        self.done()
    }

    /// Makes zeros of a range, which take no space where they are whole blocks.
    pub fn write_zeros(&self, range: std::ops::Range<u64>) -> files::Result<()> {
        self.judge(Need { bytes: SMALL, ..Need::default() })?;
        self.0.volume.write_zeros(range)?;
        self.done()
    }

    /// Returns when all that was written will outlast a power cut, unless the volume does without
    /// (sync=disabled).
    pub fn flush(&self) -> files::Result<()> {
        match self.0.manners.now().keeps {
            Keeps::Never => Ok(()),
            _ => Ok(self.0.volume.flush()?),
        }
    }

    /// Whether nothing of it may be changed (readonly=on).
    pub(super) fn is_read_only(&self) -> bool {
        self.0.manners.now().read_only
    }

    /// Makes it longer or shorter.
    pub fn resize(&self, bytes: u64) -> files::Result<()> {
        Ok(self.0.volume.resize(bytes)?)
    }

    fn judge(&self, need: Need) -> files::Result<()> {
        if self.0.set.is_retired() {
            return Err(zpl::Error::Stopped { objset: self.0.set.objset.id() }.into());
        }
        if self.is_read_only() {
            return Err(zpl::Error::ReadOnly { objset: self.0.set.objset.id() }.into());
        }
        Ok(self.0.rooms.judge(&self.0.owned, &self.0.set, &need)?)
    }

    fn done(&self) -> files::Result<()> {
        match self.0.manners.now().keeps {
            Keeps::Always => Ok(self.0.volume.flush()?),
            _ => Ok(()),
        }
    }
}

impl Held {
    /// Makes a volume of `size` bytes in blocks of `block_size`; one that is not `sparse` has its
    /// space reserved.
    pub fn create_volume(
        &self,
        new: &NewDataset,
        size: u64,
        block_size: u32,
        sparse: bool,
    ) -> Result<()> {
        self.create_volume_with(new, (size, block_size), sparse, None)
    }

    /// The same, with a user's key of its own if there is a secret. `shape`: bytes of it, and of a
    /// block.
    pub fn create_volume_with(
        &self,
        new: &NewDataset,
        shape: (u64, u32),
        sparse: bool,
        secret: Option<&[u8]>,
    ) -> Result<()> {
        let (size, block_size) = shape;
        check_size(&new.name, size, block_size)?;
        self.may_be_large(&new.name, block_size)?;
        let mut new = new.clone();
        if !sparse {
            let reserved = self.reservation(Shape { size, block: block_size.into() });
            // what is asked for itself counts
            let asked = |(name, _): &(String, String)| name == "refreservation";
            if !new.properties.iter().any(asked) {
                new.properties.push(("refreservation".to_owned(), reserved.to_string()));
            }
        }
        self.make_unseen(|| self.make_volume(new, shape, secret))
    }

    /// Makes a volume whose properties are clear. The key above stays what it is until this returns.
    fn make_volume(
        &self,
        mut new: NewDataset,
        (size, block_size): (u64, u32),
        secret: Option<&[u8]>,
    ) -> Result<()> {
        let (source, salt) = (self.0.owned.source(), self.0.world.number());
        let keying = self.keying_below(&mut new, secret)?;
        judge(&new, dsl::Kind::Volume)?;
        let (name, user) = (new.name.clone(), keying.as_ref().and_then(Keying::of_user));
        let make = move |owned: &Owned, change: &write::Change<'_>| {
            let failed = |error: dsl::Error| Error::of_dataset(&new.name, &error);
            let id = write::create(change, &new.name).map_err(failed)?;
            whole_or_none(owned, change, &new.name, || {
                let key = encrypt(change, id, keying.as_ref()).map_err(failed)?;
                note(owned, change, "create", &new.name, "");
                put_all(owned, change, &new, dsl::Kind::Volume).map_err(failed)?;
                let blank = Objset::blank(Arc::clone(&source), id, Kind::Volume, key.clone());
                let set = owned.adopt(blank, spa::Settings { key, ..spa::Settings::default() });
                NewVolume { size, block_size, salt }
                    .create(&set.objset, change.tx)
                    .map_err(|why| Error::Refused { what: why.to_string() })?;
                Ok(id)
            })
        };
        self.change(make).map(|id: ObjsetId| self.0.owned.forget(id))?;
        self.remember(&name, user)
    }

    /// Whether the pool has what such blocks take. Nothing could be written to the volume otherwise,
    /// nor to the pool then.
    fn may_be_large(&self, name: &str, block_size: u32) -> Result<()> {
        if block_size <= LARGEST_OF_OLD || has(&self.0.owned.look(), "large_blocks") {
            return Ok(());
        }
        let why = "blocks above 128K take the feature large_blocks, which the pool has not enabled";
        Err(Error::Refused { what: format!("'{name}': {why}") })
    }

    /// A volume by its full name, to be read and written.
    pub fn volume(&self, name: &str) -> Result<LiveVolume> {
        self.volume_among(&mut self.0.volumes.lock(), name)
    }

    /// The same, among those that were opened before.
    pub(super) fn volume_among(
        &self,
        open: &mut HashMap<String, LiveVolume>,
        name: &str,
    ) -> Result<LiveVolume> {
        if let Some(volume) = open.get(name) {
            return Ok(volume.clone());
        }
        let dataset = self.find(name)?;
        let failed = |error: dsl::Error| Error::of_dataset(name, &error);
        let Some(id) = dataset.id().filter(|_| !dataset.is_snapshot()) else {
            return Err(Error::Usage {
                what: format!("'{name}' is no volume that can be changed"),
            });
        };
        if dataset.key_status().map_err(failed)? == Some(dsl::KeyStatus::Unavailable) {
            return Err(crate::keys::locked(&dataset));
        }
        let owned = &self.0.owned;
        let set = self.live_set(&dataset, id)?;
        let log = owned.begin_log(&set).map_err(|why| self.explain(&why))?;
        let unreadable = |why: &dyn std::fmt::Display| Error::Unreadable {
            subject: format!("'{name}'"),
            why: why.to_string(),
        };
        let groups = owned.groups().clone();
        let volume = zvol::LiveVolume::open(set.objset.clone(), groups, Arc::clone(&log))
            .map_err(|why| unreadable(&why))?;
        if let Some(found) = log.found() {
            let (source, key) = (Arc::clone(set.objset.source()), set.objset.key().cloned());
            let synced = owned.groups().synced();
            let mut records = Records::new(source, id, &found, key, synced);
            volume.replay(&mut records).map_err(|why| unreadable(&why))?;
        }
        let manners = Manners::new(self.manner_of(&dataset), &log);
        let (owned, rooms) = (Arc::clone(owned), Rooms::default());
        let guid = dataset.guid().get();
        let inner = Inner { guid, volume, owned, set, log, rooms, manners };
        let volume = LiveVolume(Arc::new(inner));
        open.insert(name.to_owned(), volume.clone());
        Ok(volume)
    }
}

impl Held {
    /// Tells open volumes what their properties are now.
    pub(super) fn refresh_volumes(&self) {
        let open: Vec<(String, LiveVolume)> =
            self.0.volumes.lock().iter().map(|(name, open)| (name.clone(), open.clone())).collect();
        for (name, LiveVolume(open)) in open {
            let Ok(dataset) = self.find(&name) else { continue };
            open.set.configure(settings::of_blocks(&dataset));
            let caching = settings::of_caching(&dataset);
            self.0.owned.l2arc().set_kept(open.set.objset.id(), caching);
            open.manners.set(self.manner_of(&dataset), &open.log);
        }
    }
}

/// Volumes have whole blocks, of sizes that can be.
pub(super) fn check_size(name: &str, size: u64, block_size: u32) -> Result<()> {
    let refuse = |why: &str| Err(Error::Usage { what: format!("volume '{name}': {why}") });
    if !block_size.is_power_of_two() || !(512..=16 << 20).contains(&block_size) {
        return refuse("its blocks are a power of two from 512 to 16M");
    }
    if size == 0 || !size.is_multiple_of(block_size.into()) {
        return refuse(&format!("its size is a multiple of its block size, {block_size}"));
    }
    if i64::try_from(size).is_err() { refuse("it is too large") } else { Ok(()) }
}
