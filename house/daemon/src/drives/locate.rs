//! Drives whose lights blink, so that a person can find them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use api::LocateMethod;
use health::{BlockDevice, Host, blink_activity, set_light};
use parking_lot::Mutex;

use crate::log::Log;
use crate::{Error, Result};

/// The longest time in seconds for which a light blinks.
const MAX_SECONDS: u64 = 3600;
/// The time between two looks whether a light is to end.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The drives whose lights blink, and the flags that end them.
#[derive(Default)]
pub(super) struct Locator(Mutex<BTreeMap<String, Arc<AtomicBool>>>);

impl Locator {
    /// Lets the light of a drive blink for some seconds; 0 ends it.
    pub(super) fn locate(
        &self,
        host: &Host,
        device: &BlockDevice,
        seconds: u64,
        log: &Arc<Log>,
    ) -> Result<LocateMethod> {
        if seconds > MAX_SECONDS {
            let why = format!("a light blinks for {MAX_SECONDS} seconds at most");
            return Err(Error::usage_error(why));
        }
        let over = Arc::new(AtomicBool::new(false));
        let mut lights = self.0.lock();
        if let Some(old) = lights.remove(&device.name) {
            old.store(true, Ordering::Release);
        }
        if seconds == 0 {
            return Ok(LocateMethod::Off);
        }
        let light = host.locate_light(&device.name);
        let method =
            if light.is_some() { LocateMethod::SlotLight } else { LocateMethod::ActivityLight };
        let refused = |why: std::io::Error| {
            let why = engine::error::io_error_text(&why);
            Error::refused_error(format!("drive {} cannot be located: {why}", device.name))
        };
        match &light {
            Some(light) => set_light(light, true).map_err(refused)?,
            None => drop(std::fs::File::open(&device.path).map_err(refused)?),
        }
        lights.insert(device.name.clone(), Arc::clone(&over));
        drop(lights);
        let (path, log) = (device.path.clone(), Arc::clone(log));
        let end = Instant::now() + Duration::from_secs(seconds);
        let work = move || {
            let is_over = || over.load(Ordering::Acquire) || Instant::now() >= end;
            let done = match light {
                None => blink_activity(&path, is_over),
                Some(light) => {
                    while !is_over() {
                        std::thread::sleep(POLL_INTERVAL);
                    }
                    set_light(&light, false)
                }
            };
            if let Err(why) = done {
                log.write_line(&format!("drive '{}' cannot be located: {why}", path.display()));
            }
        };
        let spawned = std::thread::Builder::new().name("locate".to_owned()).spawn(work);
        spawned.map(|_| method).map_err(|why| Error::refused_error(format!("no thread: {why}")))
    }

    /// Ends all lights.
    pub(super) fn stop(&self) {
        self.0.lock().values().for_each(|over| over.store(true, Ordering::Release));
    }
}
