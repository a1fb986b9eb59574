//! Requests with very many clauses, whose conditions are parsed elsewhere before they are handled.

use std::sync::Arc;

use foldhash::fast::FixedState;
use weir_data::{Error, Schema};
use weir_json::Text;

use crate::difference::ConditionChange;
use crate::message::Version;
use crate::registry::{MonitorKey, Monitors};
use crate::subscription::Subscription;

/// What it takes to parse the conditions of a request.
#[derive(Debug)]
pub struct Prepare {
    schema: Arc<Schema>,
    hasher: FixedState,
    of: Of,
}

/// What the conditions are for.
#[derive(Clone, Debug)]
enum Of {
    New(Version),
    /// A monitor that has this, and is to have other conditions.
    Changed(Arc<Subscription>),
}

/// The conditions of a request.
#[derive(Debug)]
pub struct Prepared {
    schema: Arc<Schema>,
    of: Of,
    subscription: Result<Subscription, Error>,
}

impl Prepare {
    /// Parses `<monitor-requests>`, or `<monitor-cond-update-requests>`.
    pub fn run(self, requests: Text<'_>) -> Prepared {
        let Self { schema, hasher, of } = self;
        let subscription = match &of {
            Of::New(version) => Subscription::parse(*version, requests, &schema, &hasher),
            Of::Changed(old) => old.with_conditions(requests, &schema, &hasher),
        };
        Prepared { schema, of, subscription }
    }
}

impl Monitors {
    /// How to parse the conditions of a request for a new monitor.
    pub fn prepare(&self, version: Version, schema: &Arc<Schema>) -> Prepare {
        let (schema, hasher) = (Arc::clone(schema), self.hasher.clone());
        Prepare { schema, hasher, of: Of::New(version) }
    }

    /// How to parse a request for other conditions of a monitor, if that is there.
    pub fn prepare_change(&self, key: MonitorKey, schema: &Arc<Schema>) -> Option<Prepare> {
        let of = Of::Changed(Arc::clone(self.subscription(key)?));
        Some(Prepare { schema: Arc::clone(schema), hasher: self.hasher.clone(), of })
    }

    /// As [`Monitors::add`], of a request whose conditions are parsed; `None` if the schema has become
    /// another one since.
    pub fn add_prepared(
        &mut self,
        version: Version,
        id: Vec<u8>,
        prepared: Prepared,
        schema: &Schema,
    ) -> Option<Result<MonitorKey, Error>> {
        let Prepared { schema: of_schema, of, subscription } = prepared;
        let is_it = matches!(of, Of::New(of) if of == version) && std::ptr::eq(&*of_schema, schema);
        is_it.then(|| Ok(self.add_parsed(version, id, subscription?, schema)))
    }

    /// As [`Monitors::change_condition`], of a request whose conditions are parsed; `None` if the
    /// schema or the monitor has become another one since.
    pub fn change_prepared(
        &mut self,
        key: MonitorKey,
        new_id: Vec<u8>,
        prepared: Prepared,
        schema: &Schema,
    ) -> Option<Result<Option<ConditionChange>, Error>> {
        let Prepared { schema: of_schema, of, subscription } = prepared;
        let Of::Changed(old) = of else { return None };
        let is_it = self.subscription(key).is_some_and(|now| Arc::ptr_eq(now, &old))
            && std::ptr::eq(&*of_schema, schema);
        is_it.then(|| Ok(self.change_parsed(key, new_id, &old, subscription?, schema)))
    }
}
