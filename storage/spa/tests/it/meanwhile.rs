//! What others do while a group is written.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use device::{Device, Error, File};
use spa::design::Shape;
use spa::{Owned, create};

use crate::made::{Folder, make, new_pool, open, world};

/// What happens with the next write to a drive, and how many there were.
#[derive(Default)]
struct Watch {
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    writes: AtomicUsize,
}

impl Watch {
    fn then(&self, what: impl FnOnce() + Send + 'static) {
        *self.then.lock().unwrap() = Some(Box::new(what));
    }
}

/// A drive that is watched.
struct Busy(File, Arc<Watch>);

impl std::fmt::Debug for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Device for Busy {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        self.0.read_at(offset, into)
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        self.1.writes.fetch_add(1, Ordering::SeqCst);
        let then = self.1.then.lock().unwrap().take();
        if let Some(then) = then {
            then();
        }
        self.0.write_at(offset, from)
    }

    fn flush(&self) -> Result<(), Error> {
        self.0.flush()
    }
}

/// A pool on one drive, that drive, and who watches it.
fn busy(folder: &Folder) -> (Arc<Owned>, Arc<dyn Device>, Arc<Watch>) {
    let drives = folder.drives(1, 256 << 20);
    let file = File::open_exclusive(Path::new(&drives[0].path)).unwrap();
    let watch = Arc::new(Watch::default());
    let device: Arc<dyn Device> = Arc::new(Busy(file, Arc::clone(&watch)));
    let new = new_pool((Shape::Single, 9), &drives, vec![Arc::clone(&device)]);
    let made = create(new, world(), &mut |_, _, _| Ok(())).unwrap();
    (Arc::new(made.owned), device, watch)
}

/// The comment as the pool itself has it, and its label.
fn comments(device: &Arc<dyn Device>) -> [Option<String>; 2] {
    let (found, _) = spa::scan(std::slice::from_ref(device));
    let pool = found[0].open(&spa::Options::default()).unwrap();
    [pool.config().comment.clone(), found[0].config().unwrap().pool.comment.clone()]
}

#[test]
fn a_configuration_that_is_changed_while_a_group_is_written_comes_with_the_next() {
    let folder = Folder::new("meanwhile");
    let (owned, device, watch) = busy(&folder);
    let late = Arc::clone(&owned);
    let change = move |owned: &Owned, _: &dsl::write::Change<'_>| {
        owned.set_comment(Some("early".to_owned()));
        watch.then(move || late.set_comment(Some("late".to_owned())));
    };
    owned.perform(change).unwrap();
    let both = |comment: &str| [(); 2].map(|()| Some(comment.to_owned()));
    assert_eq!(comments(&device), both("early"));
    assert!(owned.is_dirty());
    owned.sync().unwrap();
    assert_eq!(comments(&device), both("late"));
}

#[test]
fn nothing_is_committed_once_another_host_may_have_the_pool() {
    let (folder, made) = make("given-up", Shape::Mirror, 2, 12);
    let before = made.owned.groups().synced_txg();
    let given_up = made.owned.perform(|owned, _| owned.give_up());
    assert!(matches!(given_up, Err(spa::Error::Silent)), "{given_up:?}");
    drop(made);
    assert_eq!(open(&folder).txg(), before);
}

#[test]
fn nothing_is_written_to_drives_that_another_host_may_have() {
    let writes = |gives_up: bool| {
        let folder = Folder::new(&format!("retired-{gives_up}"));
        let (owned, _, watch) = busy(&folder);
        let (late, before) = (Arc::clone(&owned), watch.writes.load(Ordering::SeqCst));
        let watched = Arc::clone(&watch);
        let done = owned.perform(move |owned, _| {
            owned.set_comment(Some("given up".to_owned()));
            if gives_up {
                watched.then(move || late.give_up());
            }
        });
        assert_eq!(matches!(done, Err(spa::Error::Silent)), gives_up, "{done:?}");
        watch.writes.load(Ordering::SeqCst) - before
    };
    // what each thread was just writing comes to its end
    let workers = world().workers;
    let (given_up, whole) = (writes(true), writes(false));
    assert!(given_up <= workers && whole > 2 * workers, "{given_up} of {whole}");
}
