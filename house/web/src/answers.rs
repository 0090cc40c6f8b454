//! The latest answers of the API that pages show. A page waits a moment for a new answer. If a drive keeps the
//! daemon waiting, the page shows the last answer and its age.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Call, Reply};
use parking_lot::Mutex;

use crate::{ApiRequest, Dashboard};

/// The time that a page waits for the API.
const PAGE_WAIT: Duration = Duration::from_secs(2);
/// The time that a change may take before the page goes on without its result.
const CHANGE_WAIT: Duration = Duration::from_secs(10);
/// The answers that are kept.
const MAX_ANSWERS: usize = 64;

/// The latest answers, by the target of the request.
#[derive(Default)]
pub(crate) struct Answers(Mutex<HashMap<String, StoredAnswer>>);

#[derive(Clone)]
struct StoredAnswer {
    body: Vec<u8>,
    /// In seconds of the monotonic clock.
    time: u64,
}

/// An answer, and its age in seconds if a new one did not come in time.
pub(crate) struct Shown<T> {
    pub(crate) value: T,
    pub(crate) age: Option<u64>,
}

/// The end of a change.
pub(crate) enum Change {
    /// It is done; the JSON of the reply.
    Done(Vec<u8>),
    /// It goes on: a job shows how it ends.
    Running,
}

impl Dashboard {
    /// The answer of a call that changes nothing.
    pub(crate) async fn ask<C: Call>(
        self: &Arc<Self>,
        call: &C,
    ) -> Result<Shown<C::Response>, String> {
        let request = ApiRequest::new(call, "")?;
        let target = format!("{} {}", request.method.as_str(), request.encoded.target);
        let asked = tokio::spawn(self.backend.call(request));
        let now = self.backend.monotonic_seconds();
        let answered = tokio::time::timeout(PAGE_WAIT, asked).await;
        let (body, age) = if let Ok(answered) = answered {
            let body = answered.map_err(|why| why.to_string())??;
            self.answers.store(target, StoredAnswer { body: body.clone(), time: now });
            (body, None)
        } else {
            let why = "A pool or a drive keeps the daemon waiting. Load the page again.";
            let kept = self.answers.find(&target).ok_or(why)?;
            (kept.body, Some(now - kept.time))
        };
        let reply: Reply<C::Response> =
            serde_json::from_slice(&body).map_err(|why| why.to_string())?;
        Ok(Shown { value: reply.value, age })
    }

    /// Makes a call whose answer is not shown: a check. Its answer is not stored.
    pub(crate) async fn check<C: Call>(&self, call: &C) -> Result<(), String> {
        let request = ApiRequest::new(call, "")?;
        match tokio::time::timeout(PAGE_WAIT, tokio::spawn(self.backend.call(request))).await {
            Ok(answered) => answered.map_err(|why| why.to_string())?.map(drop),
            Err(_) => Err("A pool or a drive keeps the daemon waiting.".to_owned()),
        }
    }

    /// Makes a change. One that takes long goes on in the background, and the log has its error.
    pub(crate) async fn make_change(
        self: &Arc<Self>,
        request: ApiRequest,
    ) -> Result<Change, String> {
        let command = request.command.clone();
        let made = tokio::spawn(self.backend.call(request));
        let (sender, result) = tokio::sync::oneshot::channel();
        let dashboard = Arc::clone(self);
        tokio::spawn(async move {
            let made = made.await.unwrap_or_else(|why| Err(why.to_string()));
            if let Err(Err(why)) = sender.send(made) {
                dashboard.backend.log(&format!("dashboard: {command}: {why}"));
            }
        });
        match tokio::time::timeout(CHANGE_WAIT, result).await {
            Ok(Ok(made)) => made.map(Change::Done),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Ok(Change::Running),
        }
    }
}

impl Answers {
    fn find(&self, target: &str) -> Option<StoredAnswer> {
        self.0.lock().get(target).cloned()
    }

    fn store(&self, target: String, answer: StoredAnswer) {
        let mut all = self.0.lock();
        if all.len() >= MAX_ANSWERS && !all.contains_key(&target) {
            let oldest = all.iter().min_by_key(|(_, kept)| kept.time);
            if let Some(oldest) = oldest.map(|(target, _)| target.clone()) {
                all.remove(&oldest);
            }
        }
        all.insert(target, answer);
    }
}
