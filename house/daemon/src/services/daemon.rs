//! The service of the daemon itself: its version, and its end.

use std::sync::Arc;

use api::{DaemonInfo, GetDaemon, StopDaemon};

use super::Service;
use crate::context::Context;
use crate::router::Router;

/// The service of the daemon itself.
pub(super) struct DaemonService {
    context: Arc<Context>,
}

impl DaemonService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }
}

impl Service for DaemonService {
    fn name(&self) -> &'static str {
        "daemon"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        router.add(|_: &GetDaemon, _| {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            Ok(DaemonInfo { version, pid: std::process::id() })
        });
        router.add(move |_: &StopDaemon, _| {
            self.context.stop.notify_one();
            Ok(())
        });
    }
}
