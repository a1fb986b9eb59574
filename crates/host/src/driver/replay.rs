//! `--replay`: the calls of a recorded run, made again (see [`crate::recording`]).
//!
//! Effects keep their order. An append, a step, and a copy that takes a file's place wait until the
//! recording says what came of them: what had failed then is not done now.

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use weir_net::error::strerror;
use weir_server::effect::Effect;
use weir_server::event::{ConversionError, DbId, Event, Now};
use weir_server::work::WorkId;
use weir_server::{Config, StartStatus};

use crate::driver::execution::Execution;
use crate::recording::{Beside, Conversion, End, Item, Reader, Recorded, Start, digest};
use crate::unixctl::Commands;
use crate::vlog::{Level, Vlog};

/// Why the replay paused.
pub(crate) enum Scene {
    /// The service begins.
    Ready,
    /// The server cannot start; these lines say why.
    Failed(Vec<String>),
    /// The run is over.
    End(End),
}

/// A run from a recording.
pub(crate) struct Replay {
    items: Reader<BufReader<File>>,
    path: PathBuf,
    /// The events are what came of files and helpers, before the recording has it.
    execution: Execution,
    commands: Commands,
    /// Effects that are not executed yet.
    waiting: VecDeque<Effect>,
    effects: Vec<Effect>,
}

/// Why a replay ends that would write something else.
const OTHER_RECORD: &str = "another record would be written; are database and server as they were \
                            when the recording began?";

/// Which answer of a file or a helper is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Opened(DbId),
    CompactionWritten(DbId),
    Converted(DbId),
    FileRead(WorkId),
    ReceivedWritten(DbId),
    ReceivedSynced(DbId),
    WorkDone(WorkId),
}

/// Clients resume from what a side file has, so it must be there, or not, as it was.
fn check_side_file(then: Option<&str>, now: Option<&str>) -> Result<(), String> {
    let shown = |text: Option<&str>| {
        text.map_or("none".to_owned(), |text| format!("one that ends in {text}"))
    };
    if then == now {
        return Ok(());
    }
    let (then, now) = (shown(then), shown(now));
    Err(format!(
        "of the files .NAME.weir-history-* beside the database, {then} was read, and now {now}"
    ))
}

impl Answer {
    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Opened { db, .. } => Some(Self::Opened(*db)),
            Event::CompactionWritten { db, .. } => Some(Self::CompactionWritten(*db)),
            Event::Converted { db, .. } => Some(Self::Converted(*db)),
            Event::FileRead { id, .. } => Some(Self::FileRead(*id)),
            Event::ReceivedWritten { db, .. } => Some(Self::ReceivedWritten(*db)),
            Event::ReceivedSynced { db, .. } => Some(Self::ReceivedSynced(*db)),
            Event::WorkDone { id, .. } => Some(Self::WorkDone(*id)),
            _ => None,
        }
    }
}

impl Replay {
    /// Reads how the run began. The configuration is that of the command line.
    ///
    /// # Errors
    /// The text for standard error.
    pub(crate) fn new(
        mut items: Reader<BufReader<File>>,
        path: PathBuf,
        mut config: Config,
        commands: Commands,
        log: Vlog,
    ) -> Result<Self, String> {
        let failed = |text: &str| format!("{}: {text}", path.display());
        let first = items.next_item().map_err(|error| failed(&error.to_string()))?;
        let first = first.ok_or_else(|| failed("an empty recording"))?;
        let Ok(Item::Start(start)) = Item::decode(&first) else {
            return Err(failed("a recording without a beginning"));
        };
        let Start { now, version, seed, saved, remotes, databases, kept_bytes_max } = start;
        if (&remotes, databases) != (&config.remotes, config.databases.len() as u64) {
            let remotes = remotes.iter().map(|remote| format!(" --remote={remote}"));
            return Err(failed(&format!(
                "recorded with {databases} databases and{}; a replay needs the same options",
                remotes.collect::<String>()
            )));
        }
        if version != env!("CARGO_PKG_VERSION") {
            let text = failed(&format!("recorded by Weir {version}, which may decide otherwise"));
            log.log("ovs_replay", Level::Warn, &text);
        }
        (config.seed, config.saved) = (seed, saved);
        config.kept_bytes_max = kept_bytes_max.and_then(|bytes| usize::try_from(bytes).ok());
        log.set_clock_ms(now.monotonic_us / 1000);
        let execution = Execution::new(now, config, None, log, true);
        let execution = execution.map_err(|error| strerror(&error))?;
        let (waiting, effects) = (VecDeque::new(), Vec::new());
        let mut replay = Self { items, path, execution, commands, waiting, effects };
        replay.take_effects();
        Ok(replay)
    }

    /// Goes on until something happens that is not decided here.
    ///
    /// # Errors
    /// The text for standard error.
    pub(crate) fn run(&mut self) -> Result<Scene, String> {
        loop {
            let offset = self.items.offset();
            let failed = |text: String| format!("{}: {text}", self.path.display());
            let item = self.items.next_item().map_err(|error| failed(error.to_string()))?;
            let Some(item) = item else {
                let text = failed("the recording ends here".to_owned());
                self.execution.log.log("ovs_replay", Level::Info, &text);
                return Ok(Scene::End(End::Exit));
            };
            let item = Item::decode(&item).map_err(|_| failed(format!("damaged at {offset}")))?;
            match self.take(item) {
                Ok(None) => {}
                Ok(Some(scene)) => return Ok(scene),
                Err(text) => {
                    let path = self.path.display();
                    return Err(format!("{path}: the run differs at offset {offset}: {text}"));
                }
            }
        }
    }

    /// The core asks for this, say.
    #[cfg(test)]
    pub(crate) fn ask(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.waiting.extend(effects);
        self.execute_waiting();
    }

    /// Waits until a file is read that was to be opened, and tells nobody.
    #[cfg(test)]
    pub(crate) fn await_opened(&mut self, db: DbId) {
        self.answer(Answer::Opened(db)).map(drop).expect("a file was to be opened");
    }

    pub(crate) fn take(&mut self, item: Item) -> Result<Option<Scene>, String> {
        match item {
            Item::Start(_) => return Err("it begins again".to_owned()),
            Item::Event(now, recorded) => self.handle(now, recorded)?,
            Item::BeginRound => self.execution.server.begin_round(),
            Item::EndRound(now) => {
                self.execution.log.set_clock_ms(now.monotonic_us / 1000);
                self.execution.server.end_round(now);
                self.take_effects();
            }
            Item::Flush(now) => {
                self.execution.server.flush_updates(now);
                self.take_effects();
            }
            Item::Append { db, length, digest: expected } => {
                let is_same = |effect: &Effect| {
                    matches!(effect, Effect::Append { db: next, bytes, .. }
                        if *next == db && bytes.len() as u64 == length && digest(bytes) == expected)
                };
                if !self.waiting.front().is_some_and(is_same) {
                    return Err(OTHER_RECORD.to_owned());
                }
            }
            Item::Persist { db, step, length, digest: expected, is_written } => {
                let is_same = |effect: &Effect| {
                    matches!(effect, Effect::Persist { db: next, step: its, bytes, .. }
                        if (*next, its.number) == (db, step)
                            && bytes.len() as u64 == length && digest(bytes) == expected)
                };
                self.persist(is_same, is_written)?;
            }
            Item::Command { name, args } => {
                self.commands.run(&name, &Ok(args), &self.execution.coverage);
            }
            Item::Said { module, level, text } => self.execution.log.log(&module, level, &text),
            Item::Ready => return Ok(Some(Scene::Ready)),
            Item::End(End::Failed) => {
                let StartStatus::Failed(lines) = self.execution.server.start_status() else {
                    return Err("it had failed to start".to_owned());
                };
                return Ok(Some(Scene::Failed(lines)));
            }
            Item::End(end @ End::Signal(_)) => return Ok(Some(Scene::End(end))),
            Item::End(end) => {
                self.execution.server.say_farewell();
                self.take_effects();
                return Ok(Some(Scene::End(end)));
            }
        }
        Ok(None)
    }

    fn handle(&mut self, now: Now, recorded: Recorded) -> Result<(), String> {
        let event = self.complete(recorded)?;
        self.execution.log.set_clock_ms(now.monotonic_us / 1000);
        self.execution.handle(now, event);
        self.take_effects();
        Ok(())
    }

    /// The event that was, with what came of files and helpers now.
    pub(crate) fn complete(&mut self, recorded: Recorded) -> Result<Event, String> {
        match recorded {
            Recorded::Whole(Event::Appended { db, result }) => self.append(db, result),
            Recorded::Whole(Event::CompactionFinished { db, result }) => self.replace(db, result),
            Recorded::Whole(Event::CompactionWritten { db, result }) => {
                let Event::CompactionWritten { result: now, .. } =
                    self.answer(Answer::CompactionWritten(db))?
                else {
                    return Err("no compaction".to_owned());
                };
                match (&result, now) {
                    (Ok(_), Err(error)) => Err(error),
                    (Ok(then), Ok(now)) if *then != now => {
                        Err(format!("a compacted copy has {now} bytes instead of {then}"))
                    }
                    _ => Ok(Event::CompactionWritten { db, result }),
                }
            }
            Recorded::Whole(event @ Event::ReceivedWritten { .. }) => self.receive(event),
            Recorded::Whole(event @ Event::ReceivedSynced { .. }) => self.receive(event),
            Recorded::Whole(event) => Ok(event),
            Recorded::Opened { db, result } => {
                let now = self.answer(Answer::Opened(db))?;
                match (result, now) {
                    (Ok(_), Event::Opened { result: Err(error), .. }) => Err(error),
                    (Ok(then), Event::Opened { result: Ok(mut loaded), .. }) => {
                        let Beside { history, keys } = then;
                        check_side_file(history.as_deref(), loaded.side_file().as_deref())?;
                        loaded.set_key_file(keys);
                        Ok(Event::Opened { db, result: Ok(loaded) })
                    }
                    (Ok(_), other) => Ok(other),
                    (Err(error), _) => Ok(Event::Opened { db, result: Err(error) }),
                }
            }
            Recorded::Converted { db, result } => {
                let now = self.answer(Answer::Converted(db))?;
                let Event::Converted { result: now, .. } = now else { return Ok(now) };
                let result = match (result, now) {
                    (Conversion::Failed(error), _) => Err(ConversionError::Failed(error)),
                    (Conversion::Done, Ok(converted)) => Ok(converted),
                    (Conversion::Refused, Err(refused @ ConversionError::Refused(_))) => {
                        Err(refused)
                    }
                    _ => return Err("a conversion ends otherwise".to_owned()),
                };
                Ok(Event::Converted { db, result })
            }
            Recorded::FileRead { db, id, result } => {
                let now = self.answer(Answer::FileRead(id))?;
                match (result, now) {
                    (Ok(_), Event::FileRead { result: Err(error), .. }) => Err(error),
                    (Ok((length, expected)), Event::FileRead { result: Ok(bytes), .. })
                        if (bytes.len() as u64, digest(&bytes)) != (length, expected) =>
                    {
                        Err("the file has something else in it".to_owned())
                    }
                    (Ok(_), now) => Ok(now),
                    (Err(error), _) => Ok(Event::FileRead { db, id, result: Err(error) }),
                }
            }
            Recorded::WorkDone { id, is_cut } => {
                let mut event = self.answer(Answer::WorkDone(id))?;
                if let Event::WorkDone { finished, .. } = &mut event
                    && is_cut
                {
                    finished.cut();
                }
                Ok(event)
            }
        }
    }

    /// An append is done, or not, as it was.
    fn append(&mut self, db: DbId, result: Result<(), String>) -> Result<Event, String> {
        let append = self.waiting.pop_front();
        match &append {
            Some(Effect::Append { db: next, .. }) if *next == db => {}
            Some(Effect::Append { .. }) => return Err("another file is to be written".to_owned()),
            _ => return Err("nothing is to be written".to_owned()),
        }
        let append = append.filter(|_| result.is_ok());
        for event in self.execute(append) {
            if let Event::Appended { result: Err(error), .. } = event {
                return Err(format!("write failed ({error})"));
            }
        }
        self.execute_waiting();
        Ok(Event::Appended { db, result })
    }

    /// A step is written, or not, as it was; the recording tells later what the disk said.
    fn persist(&mut self, is_it: impl Fn(&Effect) -> bool, is_written: bool) -> Result<(), String> {
        let step = self.waiting.pop_front().filter(is_it);
        let step = step.ok_or_else(|| OTHER_RECORD.to_owned())?;
        for event in self.execute(Some(step).filter(|_| is_written)) {
            if let Event::Persisted { result: Err(error), .. } = event {
                return Err(format!("write failed ({error})"));
            }
        }
        self.execute_waiting();
        Ok(())
    }

    /// A copy takes a file's place, or not, as it was.
    fn replace(&mut self, db: DbId, result: Result<u64, String>) -> Result<Event, String> {
        let finish = self.waiting.pop_front();
        match &finish {
            Some(Effect::FinishCompaction { db: next, .. }) if *next == db => {}
            Some(Effect::FinishCompaction { .. }) => {
                return Err("another file is to be replaced".to_owned());
            }
            _ => return Err("no copy is to take a file's place".to_owned()),
        }
        let finish = finish.filter(|_| result.is_ok());
        for event in self.execute(finish) {
            if let Event::CompactionFinished { result: Err(error), .. } = event {
                return Err(format!("a compacted copy cannot be put in place ({error})"));
            }
        }
        self.execute_waiting();
        Ok(Event::CompactionFinished { db, result })
    }

    /// What comes from elsewhere is written as it was; what had failed then may be well now.
    fn receive(&mut self, then: Event) -> Result<Event, String> {
        let wanted = Answer::of(&then).expect("only answers are received");
        let now = self.answer(wanted)?;
        let length = |event: &Event| match event {
            Event::ReceivedWritten { upto, result, .. } => result.clone().map(|()| *upto),
            Event::ReceivedSynced { result, .. } => result.clone(),
            _ => unreachable!("the answer to something else was asked for"),
        };
        match (length(&then), length(&now)) {
            (Ok(_), Err(error)) => Err(error),
            (Ok(then), Ok(now)) if then != now => {
                Err(format!("a file that is received has {now} bytes instead of {then}"))
            }
            _ => Ok(then),
        }
    }

    /// Executes an effect, if there is one, and answers with what it has caused at once.
    fn execute(&mut self, effect: Option<Effect>) -> Vec<Event> {
        let before = self.execution.events.len();
        effect.into_iter().for_each(|effect| self.execution.execute(effect, None));
        self.execution.events.split_off(before)
    }

    /// Waits for what comes of a file or a helper.
    fn answer(&mut self, wanted: Answer) -> Result<Event, String> {
        loop {
            let events = &mut self.execution.events;
            let is_wanted = |event: &Event| Answer::of(event) == Some(wanted);
            if let Some(at) = events.iter().position(is_wanted) {
                return Ok(events.remove(at));
            }
            let done = self.execution.jobs.wait().ok_or("nothing of that kind is going on")?;
            self.execution.take_done(done);
        }
    }

    fn take_effects(&mut self) {
        self.execution.server.poll_effects(&mut self.effects);
        self.waiting.extend(self.effects.drain(..));
        self.execute_waiting();
    }

    /// Executes effects up to one whose end the recording must tell first.
    fn execute_waiting(&mut self) {
        while let Some(effect) = self.waiting.pop_front() {
            if let Effect::Append { .. }
            | Effect::Persist { .. }
            | Effect::FinishCompaction { .. } = effect
            {
                return self.waiting.push_front(effect);
            }
            self.execution.execute(effect, None);
        }
    }
}
