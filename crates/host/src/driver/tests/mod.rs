//! The shell without the core: effects are executed as the loop does it, and what the core would be
//! told is looked at. `rounds` has both, and the loop.

mod peers;
mod received;
mod replayed;
mod rounds;
mod steps;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_data::Schema;
use weir_log::standalone::write_schema;
use weir_server::Config;
use weir_server::effect::Effect;
use weir_server::event::{DbId, Event, LinkId, PeerPortId};

use super::execution::Execution;
use super::incoming::listeners::Door;
use super::outside::Outside;
use super::token::Token;
use crate::clock::Clock;
use crate::coverage::Counter;
use crate::poller::Interest;
use crate::unixctl::Commands;
use crate::vlog::Vlog;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const DB: DbId = DbId(3);

const SCHEMA: &str = r#"{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}"#;

/// A shell in a folder of its own.
struct Stand {
    directory: PathBuf,
    execution: Execution,
    outside: Outside,
    /// What has passed in tests only, in microseconds.
    skipped_us: u64,
}

impl Stand {
    fn new(name: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("weir-driver-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let log = Vlog::new("test");
        let commands = Commands::new("test", log.clone(), Vec::new());
        let outside = Outside::new(
            Clock::start(),
            commands,
            directory.clone(),
            || (),
            log.clone(),
            log.clone(),
        );
        let outside = outside.unwrap();
        let execution = Execution::new(outside.now(), Config::default(), None, log, false).unwrap();
        outside.poller.add(&execution.jobs, Token::Jobs.encode(), Interest::Read).unwrap();
        Self { directory, execution, outside, skipped_us: 0 }
    }

    /// A shell with a database file of one record that is open, and its schema.
    fn with_database(name: &str) -> (Self, Arc<Schema>) {
        let mut stand = Self::new(name);
        let schema = Schema::parse_bytes(SCHEMA.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        write_schema(&mut bytes, &schema);
        let path = stand.path("conf.db");
        std::fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap().to_owned();
        stand.execute([Effect::Open { db: DB, path, seed: 1 }]);
        let event = stand.next();
        assert!(matches!(event, Event::Opened { db: DB, result: Ok(_) }), "{event:?}");
        (stand, Arc::new(schema))
    }

    /// What the database file has behind its schema.
    fn records(&self) -> String {
        let text = std::fs::read_to_string(self.path("conf.db")).unwrap();
        let (_, after) = text.split_once('\n').unwrap();
        after.split_once('\n').unwrap().1.to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Executes effects as those of one round.
    fn execute(&mut self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            self.execution.execute(effect, Some(&mut self.outside));
        }
        let Execution { coverage, events, .. } = &mut self.execution;
        self.outside.flush_links(coverage, events);
    }

    /// One round; what the core would be told.
    fn round(&mut self) -> Vec<Event> {
        let mut ready = Vec::new();
        let Self { execution, outside, skipped_us, .. } = self;
        let wait = if execution.events.is_empty() { 5 } else { 0 };
        outside.poller.wait(Some(Duration::from_millis(wait)), &mut ready).unwrap();
        let now_us = outside.monotonic_us() + *skipped_us;
        for ready in ready {
            let (events, coverage) = (&mut execution.events, &mut execution.coverage);
            match Token::decode(ready.token) {
                Token::PeerPort(port) => {
                    outside.accept(Door::Peers(PeerPortId(port)), now_us, coverage, events);
                }
                Token::Dialling => outside.take_dialled(events),
                Token::Opened => outside.take_opened(now_us, events),
                Token::Link(id) => outside.links.on_ready(&outside.poller, LinkId(id), events),
                Token::Jobs => {
                    for done in execution.jobs.take() {
                        execution.take_done(done);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        outside.listeners.wake(&outside.poller, now_us, &mut execution.events);
        std::mem::take(&mut execution.events)
    }

    /// Rounds until `is_enough` of all that the core would be told.
    fn until(&mut self, mut is_enough: impl FnMut(&[Event]) -> bool) -> Vec<Event> {
        let (mut events, limit) = (Vec::new(), Instant::now() + PATIENCE);
        while !is_enough(&events) {
            assert!(Instant::now() < limit, "still waiting behind {events:?}");
            events.extend(self.round());
        }
        events
    }

    /// Rounds until the next event, and that one. Nothing else may have happened.
    fn next(&mut self) -> Event {
        let mut events = self.until(|events| !events.is_empty());
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    fn count(&self, counter: Counter) -> u64 {
        self.execution.coverage.total(counter)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
