//! An open file of a file system that can be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use engine::files::{Content, File};
use engine::held::{InUse, LiveFiles, LiveVolume};
use parking_lot::Mutex;
use units::ObjectId;

use super::{By, HEAD, Live};
use crate::ahead::Ahead;
use crate::number::Node;
use crate::{Error, Reader, Result};

/// An open file. It stays although it may lose its last name, until this is dropped.
pub struct Open {
    live: Live,
    number: u64,
    how: How,
    /// The second in which reading was last noted.
    noted: AtomicI64,
    /// How often capabilities had been given to files when it was last seen to that this one has none.
    plain: AtomicU64,
    /// Whether reading was to be noted when it was opened.
    is_access_due: bool,
    /// Whether reading is not noted at all.
    is_secret: bool,
}

enum How {
    /// A file that may change.
    Live(Hold),
    /// A file of a snapshot.
    Still(Arc<Reader>),
    /// A volume, looked up anew each time: it may have been taken back to a snapshot, or be called
    /// otherwise by now.
    Volume(#[expect(dead_code, reason = "its end tells that the volume is closed")] InUse),
    /// A file that is no more, as its file system was taken back to a snapshot.
    Gone,
}

/// A file that may change.
struct Hold {
    ahead: Mutex<Ahead>,
    content: Content,
    /// Which of those that may have had its number it is.
    generation: u64,
    _kept: Kept,
}

/// A file stays although it may lose its last name, until this is dropped.
pub struct Kept {
    object: ObjectId,
    /// Where it is held: others may take their place in the file system.
    files: LiveFiles,
}

impl Open {
    pub(super) fn new(live: &Live, number: u64, file: &File) -> Result<Self> {
        let content = file.content();
        let Node::File(HEAD, _) = Live::node(number)? else {
            let how = How::Still(Reader::new(content, &live.0.workers));
            return Ok(Self::with(live, number, how));
        };
        let files = live.0.files().clone();
        let kept = Kept::new(&files, Live::object(number)?)?;
        let facts = file.facts();
        let is_access_due = !live.is_still() && files.is_access_due(&facts, live.now());
        let how = How::Live(Hold::new(kept, facts.generation, content));
        Ok(Self { is_access_due, ..Self::with(live, number, how) })
    }

    /// A file without a name that is held already.
    pub(super) fn unnamed(live: &Live, files: &LiveFiles, file: &File) -> Self {
        let facts = file.facts();
        let kept = Kept { object: ObjectId::new(facts.id), files: files.clone() };
        let hold = Hold::new(kept, facts.generation, file.content());
        Self::with(live, facts.id, How::Live(hold))
    }

    pub(super) fn of_volume(live: &Live, number: u64, in_use: InUse) -> Self {
        Self::with(live, number, How::Volume(in_use))
    }

    fn volume(&self) -> Result<LiveVolume> {
        self.live.volume(self.number)?.ok_or(Error::Absent)
    }

    fn with(live: &Live, number: u64, how: How) -> Self {
        let (noted, plain) = (AtomicI64::new(i64::MIN), AtomicU64::new(0));
        let (live, is_access_due, is_secret) = (live.clone(), false, false);
        Self { live, number, how, noted, plain, is_access_due, is_secret }
    }

    /// The same, of which reading is not noted.
    #[must_use]
    pub fn in_secret(self) -> Self {
        Self { is_access_due: false, is_secret: true, ..self }
    }

    /// Whether reading was to be noted (atime) when it was opened: whoever keeps what was read before
    /// must ask for it once more.
    pub fn is_access_due(&self) -> bool {
        self.is_access_due
    }

    /// Whether it is a volume, which others may change than who asks here.
    pub fn is_volume(&self) -> bool {
        matches!(self.how, How::Volume(_))
    }

    /// Its number, while it is there.
    pub fn number(&self) -> Result<u64> {
        match self.how {
            How::Gone => Err(Error::Stale),
            _ => Ok(self.number),
        }
    }

    /// The same, opened anew after its file system was taken back to a snapshot; none: it stays as it
    /// is.
    pub fn again(&self) -> Option<Self> {
        let How::Live(hold) = &self.how else { return None };
        let found = self.live.file(self.number).ok();
        let found = found.filter(|file| file.facts().generation == hold.generation);
        let open = found.and_then(|file| Self::new(&self.live, self.number, &file).ok());
        let open = open.unwrap_or_else(|| Self::with(&self.live, self.number, How::Gone));
        Some(if self.is_secret { open.in_secret() } else { open })
    }

    /// Sees to it that the file has no capabilities, as a change of it must. Once it has none, it is
    /// looked at again only when any file has been given some since.
    pub fn drop_capabilities(&self, by: By) -> Result<()> {
        let given = self.live.0.capabilities.load(Ordering::Acquire);
        if self.plain.load(Ordering::Relaxed) != given {
            self.live.drop_capabilities(by, self.number()?)?;
            self.plain.store(given, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads bytes from `offset` on; gives how many: fewer than there is room for at the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let length = into.len();
        let (content, ahead) = match &self.how {
            How::Still(reader) => {
                return reader.read(offset, length, |bytes| {
                    let (filled, _) = into.split_at_mut(bytes.len());
                    filled.copy_from_slice(bytes);
                    bytes.len()
                });
            }
            How::Volume(_) => return Ok(self.volume()?.read(offset, into)?),
            How::Live(hold) => (&hold.content, &hold.ahead),
            How::Gone => return Err(Error::Stale),
        };
        self.note_access();
        let beyond = ahead.lock().beyond(offset, length);
        if let Some(beyond) = beyond {
            // looked up anew: what was opened does not know how long it is by now
            if let Ok(content) = self.live.content(self.number) {
                self.live.0.workers.errands().warm(content, beyond);
            }
        }
        Ok(content.read(offset, into)?)
    }

    /// Notes that the file was read; more than once a second would tell nobody more.
    fn note_access(&self) {
        let now = self.live.now();
        if self.is_secret || self.live.is_still() {
            return;
        }
        if self.noted.swap(now.seconds, Ordering::Relaxed) == now.seconds {
            return;
        }
        if let Ok(object) = Live::object(self.number) {
            // a full or suspended pool can still be read
            let _ = self.live.0.files().accessed(object, now);
        }
    }

    /// The first byte from `from` on that is not in a hole; none if there is no such byte.
    pub fn next_data(&self, from: u64) -> Result<Option<u64>> {
        match &self.how {
            How::Still(reader) => reader.next_data(from),
            How::Volume(_) => {
                let size = self.volume()?.size();
                Ok(Some(from).filter(|from| *from < size))
            }
            How::Live(_) | How::Gone => Ok(self.live.content(self.number()?)?.next_data(from)?),
        }
    }

    /// The first byte from `from` on that is in a hole; the end is one.
    pub fn next_hole(&self, from: u64) -> Result<u64> {
        match &self.how {
            How::Still(reader) => reader.next_hole(from),
            How::Volume(_) => Ok(self.volume()?.size()),
            How::Live(_) | How::Gone => Ok(self.live.content(self.number()?)?.next_hole(from)?),
        }
    }

    /// Bytes of it.
    pub fn size(&self) -> Result<u64> {
        match &self.how {
            How::Still(reader) => Ok(reader.size()),
            How::Volume(_) => Ok(self.volume()?.size()),
            How::Live(_) | How::Gone => Ok(self.live.attributes(self.number()?)?.size),
        }
    }
}

impl Hold {
    fn new(kept: Kept, generation: u64, content: Content) -> Self {
        Self { ahead: Mutex::default(), content, generation, _kept: kept }
    }
}

impl Kept {
    pub(super) fn new(files: &LiveFiles, object: ObjectId) -> Result<Self> {
        files.hold(object)?;
        Ok(Self { object, files: files.clone() })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // what could not be freed now is freed when the file system is next opened
        let _ = self.files.release(self.object);
    }
}
