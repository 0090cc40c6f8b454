//! Long work on a repository in this process, with a progress bar, and Ctrl-C.

use std::time::Duration;

use job::Job;

use crate::interrupt;
use crate::progress::Progress;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Does work that a job watches and cancels. `total`: bytes in all; 0 if that is not known.
pub(super) fn with_progress<T: Send>(
    total: u64,
    quiet: bool,
    work: impl FnOnce(&Job) -> T + Send,
) -> T {
    interrupt::install_handler();
    let (job, progress) = (Job::default(), Progress::new(total, quiet));
    let result = std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&job));
        let mut done = 0;
        while !worker.is_finished() {
            let now = job.progress.bytes_done();
            progress.add_bytes(now.saturating_sub(done));
            progress.set_message(&job.progress.message());
            done = now;
            if interrupt::is_interrupted() {
                job.cancel.cancel();
            }
            std::thread::park_timeout(POLL_INTERVAL);
        }
        worker.join()
    });
    progress.finish();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
