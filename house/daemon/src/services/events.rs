//! The service of events: listed, and waited for.

use std::sync::Arc;
use std::time::Duration;

use api::{ListEvents, Reply};

use super::Service;
use crate::context::Context;
use crate::events::Events;
use crate::router::Router;

/// The longest time that a call waits for an event, in seconds.
const MAX_WAIT: u64 = 60;

/// The service of events.
pub(super) struct EventService {
    events: Arc<Events>,
}

impl EventService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { events: Arc::clone(&context.events) }
    }
}

impl Service for EventService {
    fn name(&self) -> &'static str {
        "events"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        router.add_async(move |call: ListEvents, _, _| {
            let events = Arc::clone(&self.events);
            async move {
                let page = events.after(call.after);
                if !page.events.is_empty() || call.wait == 0 {
                    return Ok(Reply::from(page));
                }
                let wait = Duration::from_secs(call.wait.min(MAX_WAIT));
                // after that time the page is empty
                let _ = tokio::time::timeout(wait, events.wait(page.last)).await;
                Ok(events.after(Some(page.last)).into())
            }
        });
    }
}
