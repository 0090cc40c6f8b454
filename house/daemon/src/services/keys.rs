//! The service of encryption keys.

use std::sync::Arc;

use api::{ChangeKey, InheritKey, LoadKey, Reply, UnloadKey};

use super::Service;
use crate::context::Context;
use crate::pools::Pools;
use crate::router::Router;

/// The service of encryption keys.
pub(super) struct KeyService {
    pools: Arc<Pools>,
}

impl KeyService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { pools: Arc::clone(&context.pools) }
    }
}

impl Service for KeyService {
    fn name(&self) -> &'static str {
        "keys"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &LoadKey, _| Ok(Reply::with_warnings(pools.load_key(call)?)));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &UnloadKey, _| {
            Ok(Reply::with_warnings(pools.unload_key(&call.name)?))
        });
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &ChangeKey, _| pools.change_key(call));
        let pools = Arc::clone(&self.pools);
        router.add(move |call: &InheritKey, _| pools.inherit_key(&call.name));
    }
}
