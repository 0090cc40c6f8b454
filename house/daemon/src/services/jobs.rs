//! The service of jobs: listed, cancelled.

use std::sync::Arc;

use api::{CancelJob, ListJobs};

use super::Service;
use crate::context::Context;
use crate::jobs::Jobs;
use crate::router::Router;

/// The service of jobs.
pub(super) struct JobService {
    jobs: Arc<Jobs>,
}

impl JobService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { jobs: Arc::clone(&context.jobs) }
    }
}

impl Service for JobService {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let jobs = Arc::clone(&self.jobs);
        router.add(move |_: &ListJobs, _| Ok(jobs.list()));
        let jobs = Arc::clone(&self.jobs);
        router.add(move |call: &CancelJob, _| jobs.cancel(call.id));
    }
}
