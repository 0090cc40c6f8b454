//! Alerts: listed and acknowledged, and the channels tested.

use alerts::Alert;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists the alerts: the open ones, the most urgent first, then those that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListAlerts {}

impl Call for ListAlerts {
    type Response = AlertList;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/alerts";
    const CHANGES: bool = false;
}

/// The alerts and their channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertList {
    /// The alerts.
    pub alerts: Vec<Alert>,
    /// The channels that are configured: "mail", "ntfy", "webhook".
    pub channels: Vec<String>,
    /// A sentence for each channel that could not deliver a message.
    pub undelivered: Vec<String>,
}

/// Acknowledges an open alert: the verdict ignores it until it gets worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AcknowledgeAlert {
    /// The key of the alert, as `poolhouse alerts list --json` shows it.
    pub key: String,
}

impl Call for AcknowledgeAlert {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/alerts/acknowledge";
    const CHANGES: bool = true;
    const OPERATES: bool = true;

    fn action(&self) -> String {
        format!("acknowledge alert '{}'", self.key)
    }
}

/// Sends a message by every channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TestAlerts {}

impl Call for TestAlerts {
    type Response = Vec<ChannelTest>;
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/alerts/test";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        "test alerts".to_owned()
    }
}

/// The result of a test message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelTest {
    /// The channel.
    pub channel: String,
    /// Why the message was not delivered; none: it was.
    pub error: Option<String>,
}
