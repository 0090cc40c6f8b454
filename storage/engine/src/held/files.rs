//! File systems that can be written.

use std::sync::Arc;

use ondisk::znode::Time;
use spa::Set;
use units::ObjsetId;
use zpl::{NewFs, Writer};

use super::begin::Beginner;
use super::{Held, settings};
use crate::files::Files;
use crate::{Error, Result};

/// A file system of a held pool. Cheap to clone.
#[derive(Clone)]
pub struct LiveFiles {
    /// Reads it, with all that waits to be written.
    files: Files,
    writer: Arc<Writer>,
    set: Arc<Set>,
}

impl LiveFiles {
    /// Reads it, with all that waits to be written.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Changes it.
    pub fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// The number of its object set.
    pub fn id(&self) -> u64 {
        self.set.objset.id().get()
    }

    pub(super) fn set(&self) -> &Arc<Set> {
        &self.set
    }
}

/// What a new file system is, where nothing else is said.
pub(super) fn new_fs(now: Time) -> NewFs {
    NewFs {
        case: zpl::Case::Sensitive,
        normalization: 0,
        utf8_only: false,
        owner: (0, 0),
        now,
        projects: true,
        slots: 1,
        version: 5,
    }
}

impl Held {
    /// A file system by its full name, to be read and written.
    pub fn files(&self, name: &str) -> Result<LiveFiles> {
        let mut open = self.0.files.lock();
        if let Some(files) = open.get(name) {
            return Ok(files.clone());
        }
        let dataset = self.find(name)?;
        let failed = |error: dsl::Error| Error::of_dataset(name, &error);
        let Some(id) = dataset.id().filter(|_| !dataset.is_snapshot()) else {
            return Err(Error::Usage {
                what: format!("'{name}' is no file system that can be changed"),
            });
        };
        let files = self.open_files(&dataset, id).map_err(|error| match error {
            Trouble::Dataset(error) => failed(error),
            Trouble::Files(error) => {
                Error::Unreadable { subject: format!("'{name}'"), why: error.to_string() }
            }
        })?;
        open.insert(name.to_owned(), files.clone());
        Ok(files)
    }

    fn open_files(
        &self,
        dataset: &dsl::Dataset,
        id: ObjsetId,
    ) -> std::result::Result<LiveFiles, Trouble> {
        let owned = &self.0.owned;
        let set = match owned.set(id) {
            Some(set) => set,
            None => owned.adopt(dataset.open()?.to_live(), settings::of_blocks(dataset)),
        };
        let fs = zpl::Fs::open(set.objset.clone(), settings::of_reading(dataset), None)?.0;
        let (world, owned) = (self.0.world.clone(), Arc::clone(owned));
        let begin = Arc::new(Beginner { owned, set: Arc::clone(&set), world });
        let writer = Writer::new(fs.clone(), begin, settings::of_writing(dataset))?;
        writer.drain()?;
        Ok(LiveFiles { files: Files::live(fs), writer: Arc::new(writer), set })
    }

    /// Lets go of a file system: whoever asks for it next gets it as it is then.
    pub(super) fn let_go(&self, name: &str) {
        if let Some(files) = self.0.files.lock().remove(name) {
            self.0.owned.forget(files.set.objset.id());
        }
    }

    /// Tells open file systems what their properties are now.
    pub(super) fn refresh(&self) -> Result<()> {
        let open: Vec<(String, LiveFiles)> =
            self.0.files.lock().iter().map(|(name, files)| (name.clone(), files.clone())).collect();
        for (name, files) in open {
            let Ok(dataset) = self.find(&name) else { continue };
            *files.set().settings.write() = settings::of_blocks(&dataset);
            files.writer().set_settings(settings::of_writing(&dataset));
        }
        Ok(())
    }
}

enum Trouble {
    Dataset(dsl::Error),
    Files(zpl::Error),
}

impl From<dsl::Error> for Trouble {
    fn from(error: dsl::Error) -> Self {
        Self::Dataset(error)
    }
}

impl From<zpl::Error> for Trouble {
    fn from(error: zpl::Error) -> Self {
        Self::Files(error)
    }
}
