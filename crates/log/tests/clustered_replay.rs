//! Clustered files read in pieces: tables, term, vote and log as they were written, wherever the
//! file is cut or bent; and files of the reference.

mod holes;
mod joining;
mod reference;
mod removed;
mod sample;

use std::sync::Arc;

use reference::{Folder, is_installed, output};
use sample::{Content, Random, content, schema_text, transaction};
use weir_data::{Delta, Row, Schema, Store, Uuid};
use weir_json::Text;
use weir_log::clustered::{
    Applied, Configuration, DataText, EntryText, Finished, Kind, Loaded, Record, Replayer, Servers,
    SnapshotHeader, SnapshotReader, Tail, stream_snapshot_data, write_snapshot,
};
use weir_log::record::write_clustered_record;
use weir_log::standalone::{Decoder, Form, LoadError, write_transaction_json};

const S1: &str = "11111111-1111-4111-8111-111111111111";
const S2: &str = "22222222-2222-4222-8222-222222222222";
const CID: &str = "33333333-3333-4333-8333-333333333333";
const EID: &str = "55555555-5555-4555-8555-555555555555";

fn id(text: &str) -> Uuid {
    Uuid::parse(text).unwrap()
}

/// How a file is read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    step: usize,
    pieces_min: u64,
    kept_max: usize,
}

const WHOLE: Reading = Reading { step: usize::MAX, pieces_min: u64::MAX, kept_max: usize::MAX };
const READINGS: [Reading; 6] = [
    WHOLE,
    Reading { step: 113, ..WHOLE },
    Reading { step: 1, pieces_min: 0, kept_max: usize::MAX },
    Reading { step: 50, pieces_min: 200, kept_max: 300 },
    Reading { step: 4096, pieces_min: 0, kept_max: 0 },
    Reading { step: 7, pieces_min: u64::MAX, kept_max: 500 },
];

fn read_with(
    file: &[u8],
    reading: Reading,
    each: &mut dyn FnMut(Applied<'_>),
) -> Result<Loaded, LoadError> {
    let mut replayer = replayer(reading);
    replayer.tell_deltas_from(0);
    read_by(replayer, file, reading, each)
}

fn replayer(reading: Reading) -> Replayer {
    let mut replayer = Replayer::with_budget("db", 3, reading.pieces_min, reading.kept_max);
    replayer.convert_with(convert);
    replayer
}

fn read_by(
    mut replayer: Replayer,
    file: &[u8],
    reading: Reading,
    each: &mut dyn FnMut(Applied<'_>),
) -> Result<Loaded, LoadError> {
    let step = reading.step;
    let mut at = 0;
    // Each phase goes through the file at most twice a record that is read once more.
    for _ in 0..10_000_000 {
        at = replayer.again_from().map_or(at, |offset| offset as usize);
        if at < file.len() {
            let end = at.saturating_add(step).min(file.len());
            replayer.feed_with(&file[at..end], each)?;
            at = end;
            continue;
        }
        match replayer.finish()? {
            Finished::Loaded(loaded) => return Ok(*loaded),
            Finished::Again(again) => replayer = *again,
        }
        at = replayer.again_from().expect("a place") as usize;
        let end = at.saturating_add(step).min(file.len());
        replayer.feed_with(&file[at..end], each)?;
        at = end;
    }
    panic!("no end of {reading:?}")
}

fn read(file: &[u8], reading: Reading) -> Result<Loaded, LoadError> {
    read_with(file, reading, &mut |_| ())
}

fn salvaged(file: &[u8], reading: Reading) -> Result<Loaded, LoadError> {
    let mut replayer = replayer(reading);
    replayer.salvage();
    read_by(replayer, file, reading, &mut |_| ())
}

/// Schemas of the tests differ in their version only.
fn convert(store: Store, schema: Arc<Schema>, seed: u64) -> Result<Store, String> {
    let mut converted = Store::new(Arc::clone(&schema), seed);
    for (table, _) in schema.table_ids() {
        for row in store.table(table).iter() {
            converted.insert(table, row.clone());
        }
    }
    Ok(converted)
}

/// What a file tells behind one of its records.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    term: u64,
    vote: Option<Uuid>,
    leader: Option<Uuid>,
    commit_index: u64,
    /// Term and text of the data of each entry.
    entries: Vec<(u64, Option<String>)>,
    committed: Configuration,
    latest: Configuration,
    version: String,
    content: Content,
}

impl Known {
    fn of(loaded: &Loaded, file: &[u8]) -> Self {
        let entries = loaded.entries.iter().map(|entry| {
            let text = |offset: u64, len: u64| {
                let text = &file[offset as usize..(offset + len) as usize];
                String::from_utf8_lossy(text).into_owned()
            };
            (entry.term, entry.data.map(|place| text(place.offset, place.len)))
        });
        let store = loaded.store.as_ref().unwrap();
        Self {
            term: loaded.term,
            vote: loaded.vote,
            leader: loaded.leader,
            commit_index: loaded.commit_index,
            entries: entries.collect(),
            committed: loaded.committed.clone(),
            latest: loaded.latest.clone(),
            version: store.schema().version.clone(),
            content: content(store),
        }
    }
}

/// A log that is being written, by somebody who remembers all.
struct Writer {
    random: Random,
    file: Vec<u8>,
    /// After each record: where it ends and what the file tells then.
    states: Vec<(usize, Known)>,
    known: Known,
    /// The rows behind the last entry, and what led there.
    store: Store,
    deltas: Vec<Delta>,
    /// By index from that of the snapshot on.
    behind: Vec<Behind>,
}

/// What is in force behind an entry.
#[derive(Clone)]
struct Behind {
    configuration: Configuration,
    version: String,
    content: Content,
}

/// Index and term of the snapshot.
const FIRST: (u64, u64) = (7, 3);

impl Writer {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let text = schema_text(&mut random).replace(r#","ephemeral":true"#, "");
        let mut store = Store::new(Arc::new(Schema::parse_bytes(text.as_bytes()).unwrap()), 7);
        for _ in 0..random.below(5) {
            let delta = transaction(&mut random, &store);
            store.apply(&delta);
        }
        let servers = Servers::from([(id(S1), "unix:a".to_owned())]);
        let configuration = Configuration { servers: servers.clone(), election_timer: 2000 };
        let (version, kept) = ("1.2.3".to_owned(), content(&store));
        let known = Known {
            term: FIRST.1,
            vote: None,
            leader: None,
            commit_index: FIRST.0,
            entries: vec![],
            committed: configuration.clone(),
            latest: configuration.clone(),
            version: version.clone(),
            content: kept.clone(),
        };
        let behind = vec![Behind { configuration, version, content: kept }];
        let (file, states, deltas) = (vec![], vec![], vec![]);
        let mut writer = Self { random, file, states, known, store, deltas, behind };
        let header = SnapshotHeader {
            server_id: id(S1),
            local_address: "unix:a",
            name: "D",
            cluster_id: id(CID),
            servers: &servers,
            index: FIRST.0,
            term: FIRST.1,
            eid: id(EID),
            election_timer: Some(2000),
        };
        let mut sink = |piece: &[u8]| {
            writer.file.extend_from_slice(piece);
            Ok::<(), ()>(())
        };
        write_snapshot(&header, &writer.store.snapshot(), 5, None, &mut sink).unwrap();
        writer.end_record();
        writer
    }

    fn end_record(&mut self) {
        let last = self.behind.last().unwrap().configuration.clone();
        self.known.latest = last;
        let behind = self.behind[(self.known.commit_index - FIRST.0) as usize].clone();
        self.known.committed = behind.configuration;
        (self.known.version, self.known.content) = (behind.version, behind.content);
        self.states.push((self.file.len(), self.known.clone()));
    }

    fn write(&mut self, term: u64, kind: Kind<'_>) {
        Record { comment: None, term, kind }.write(&mut self.file);
        self.end_record();
    }

    fn step(&mut self) {
        let term = self.known.term;
        match self.random.below(12) {
            0 => {
                (self.known.term, self.known.vote, self.known.leader) = (term + 1, None, None);
                match self.random.below(3) {
                    0 => self.write(term + 1, Kind::Term),
                    1 => {
                        self.known.vote = Some(id(S2));
                        self.write(term + 1, Kind::Vote(id(S2)));
                    }
                    _ => {
                        self.known.leader = Some(id(S1));
                        self.write(term + 1, Kind::Leader(id(S1)));
                    }
                }
            }
            1 => self.write(0, Kind::Note("transfer leadership".to_owned())),
            2 => {
                let open = self.behind.len() - (self.known.commit_index - FIRST.0) as usize;
                if open > 1 {
                    self.truncate(open);
                }
                self.append();
            }
            3..6 => {
                let last = FIRST.0 + self.behind.len() as u64 - 1;
                let open = (last - self.known.commit_index) as usize;
                self.known.commit_index += self.random.below(open + 1) as u64;
                self.write(0, Kind::CommitIndex(self.known.commit_index));
            }
            _ => self.append(),
        }
    }

    /// Takes back some of the entries that are not committed.
    fn truncate(&mut self, open: usize) {
        for _ in 0..self.random.below(open) {
            self.known.entries.pop();
            self.behind.pop();
            let last = self.deltas.pop().unwrap();
            self.store.apply(&last.inverse());
            // Schemas differ in version only, so it is the same store under another one.
            self.set_version(&self.behind.last().unwrap().version.clone());
        }
    }

    fn set_version(&mut self, version: &str) {
        let mut schema = (**self.store.schema()).clone();
        schema.version = version.to_owned();
        let old = std::mem::replace(&mut self.store, Store::new(Arc::new(schema.clone()), 7));
        self.store = convert(old, Arc::new(schema), 7).unwrap();
    }

    fn append(&mut self) {
        let mut configuration = self.behind.last().unwrap().configuration.clone();
        let (mut servers, mut election_timer, mut text) = (None, None, None);
        let mut delta = Delta::default();
        let version = format!("1.2.{}", self.random.below(90));
        match self.random.below(10) {
            0 => {
                let address = format!("tcp:10.0.0.1:{}", self.random.below(9) + 1);
                configuration.servers.insert(id(S2), address);
                servers = Some(configuration.servers.clone());
            }
            1 => {
                configuration.election_timer = 1500 + self.random.below(9) as u64;
                election_timer = Some(configuration.election_timer);
            }
            2 => {}
            3 => {
                self.set_version(&version);
                text = Some(format!("[{},null]", self.store.schema()).into_bytes());
            }
            4 => {
                self.set_version(&version);
                let mut data = vec![];
                let mut sink = |piece: &[u8]| {
                    data.extend_from_slice(piece);
                    Ok::<(), ()>(())
                };
                stream_snapshot_data(&self.store.snapshot(), 5, None, &mut sink).unwrap();
                text = Some(data);
            }
            _ => {
                delta = transaction(&mut self.random, &self.store);
                self.store.apply(&delta);
                let form = *self.random.pick(&[Form::Difference, Form::Whole]);
                let mut json = vec![];
                write_transaction_json(form, &mut json, &delta, &self.store, 5, Some("c"));
                let mut data = vec![];
                DataText::Pair { schema: None, transaction: Some(&json) }.write(&mut data);
                text = Some(data);
            }
        }
        let (term, index) = (self.known.term, FIRST.0 + self.behind.len() as u64);
        let data = text.as_deref().map(|text| (DataText::Whole(text), self.random.uuid()));
        let (comment, servers) = (None, servers.as_ref());
        let is_marked = index.is_multiple_of(3);
        let entry = EntryText { comment, term, index, servers, election_timer, data, is_marked };
        entry.write(&mut self.file);
        let text = text.map(|text| String::from_utf8(text).unwrap());
        self.known.entries.push((term, text));
        self.deltas.push(delta);
        let version = self.store.schema().version.clone();
        self.behind.push(Behind { configuration, version, content: content(&self.store) });
        self.end_record();
    }
}

fn written(seed: u64, records: usize) -> Writer {
    let mut writer = Writer::new(seed);
    (0..records).for_each(|_| writer.step());
    writer
}

#[test]
fn what_was_written_is_read_however_it_is_fed() {
    for seed in 0..60 {
        let writer = written(seed, 60);
        let (len, expected) = writer.states.last().unwrap();
        for reading in READINGS {
            let loaded = read(&writer.file, reading).unwrap();
            assert_eq!(loaded.tail, Tail::None);
            let lengths = (loaded.valid_len, loaded.file_len, loaded.records);
            assert_eq!(lengths, (*len as u64, *len as u64, 61), "{seed} {reading:?}");
            assert_eq!(loaded.snapshot_len, writer.states[0].0 as u64);
            assert!(loaded.entries.iter().map(|e| e.index).eq((8..).take(loaded.entries.len())));
            assert_eq!(&Known::of(&loaded, &writer.file), expected, "{seed} {reading:?}");
        }
    }
}

/// Where the cluster is lost, nobody can tell any more which entries were committed.
#[test]
fn salvaging_applies_all_entries_that_were_not_taken_back() {
    let mut more = 0;
    for seed in 0..60 {
        let writer = written(seed, 60);
        let known = &writer.known;
        let expected = Known {
            version: writer.behind.last().unwrap().version.clone(),
            content: content(&writer.store),
            ..known.clone()
        };
        more += usize::from(expected != *known);
        // The end, or what a crash has torn behind it.
        let torn = [&writer.file[..], &writer.file[..40]].concat();
        for reading in READINGS {
            let loaded = salvaged(&writer.file, reading).unwrap();
            assert_eq!(loaded.tail, Tail::None);
            assert_eq!(Known::of(&loaded, &writer.file), expected, "{seed} {reading:?}");
            let loaded = salvaged(&torn, reading).unwrap();
            assert!(matches!(loaded.tail, Tail::Torn { .. }));
            assert_eq!(Known::of(&loaded, &writer.file), expected, "{seed} {reading:?}");
        }
    }
    assert!(more > 20, "{more} files with entries that are not committed");
}

#[test]
fn a_file_that_is_cut_anywhere_tells_what_is_before() {
    let mut torn = 0;
    for seed in 0..2 {
        let Writer { file, states, .. } = written(seed, 16);
        for cut in states[0].0..file.len() {
            let reading = READINGS[cut % READINGS.len()];
            let loaded = read(&file[..cut], reading).unwrap();
            let (len, expected) = states.iter().rev().find(|(len, _)| *len <= cut).unwrap();
            assert_eq!((loaded.valid_len, loaded.file_len), (*len as u64, cut as u64));
            assert_eq!(matches!(loaded.tail, Tail::Torn { .. }), *len < cut, "{cut} {reading:?}");
            torn += usize::from(*len < cut);
            assert_eq!(&Known::of(&loaded, &file), expected, "{seed} {cut} {reading:?}");
        }
        for cut in (0..states[0].0).step_by(11) {
            assert!(read(&file[..cut], READINGS[cut % READINGS.len()]).is_err());
        }
    }
    assert!(torn > 1000);
}

#[test]
fn a_bad_record_with_good_ones_behind_it_is_damage() {
    let (mut seen, mut named) = ([0; 2], [0; 2]);
    for seed in 20..24 {
        let Writer { file, states, .. } = written(seed, 15);
        let ends: Vec<usize> = states.iter().map(|(len, _)| *len).collect();
        for at in ends[0]..file.len() {
            let mut bent = file.clone();
            bent[at] = match at % 3 {
                0 => bent[at] ^ 1,
                1 => b'\n',
                _ => b'9',
            };
            if bent[at] == file[at] {
                continue;
            }
            let reading = READINGS[at % READINGS.len()];
            let loaded = read(&bent, reading).unwrap();
            // Which record the byte is in.
            let record = ends.iter().position(|end| at < *end).unwrap();
            assert_eq!(loaded.valid_len as usize, ends[record - 1], "{at} {reading:?}");
            assert_eq!(&Known::of(&loaded, &file), &states[record - 1].1);
            let is_last = record + 1 == ends.len();
            seen[usize::from(is_last)] += 1;
            match loaded.tail {
                Tail::Torn { warning } => {
                    assert!(is_last, "{at} {reading:?}: {warning}");
                    assert!(warning.contains(" error: db: "), "{warning}");
                }
                Tail::Damaged { good_offset, servers, .. } => {
                    assert_eq!(good_offset as usize, ends[record], "{at} {reading:?}");
                    let expected = servers_behind(&file[ends[record]..]);
                    assert_eq!(servers, expected, "{at} {reading:?}");
                    named[usize::from(expected.is_some())] += 1;
                }
                Tail::None => panic!("{at} {reading:?}"),
            }
        }
    }
    assert!(seen.iter().chain(&named).all(|seen| *seen > 100), "{seen:?} {named:?}");
}

/// The servers that the last of these records names which names any.
fn servers_behind(records: &[u8]) -> Option<Servers> {
    let bodies = records.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
    let kinds = bodies.map(|body| Record::parse(weir_json::validate(body).unwrap()).unwrap().kind);
    let mut named = kinds.filter_map(|kind| match kind {
        Kind::Entry(entry) => entry.servers,
        _ => None,
    });
    named.next_back()
}

#[test]
fn applied_entries_are_told_with_what_they_change() {
    for seed in 0..20 {
        let writer = written(seed, 60);
        for reading in READINGS {
            let mut told = vec![];
            let mut store: Option<Store> = None;
            let loaded = read_with(&writer.file, reading, &mut |applied| {
                let behind = &writer.behind[(applied.index - FIRST.0) as usize];
                assert_eq!(content(applied.store), behind.content);
                if let (Some(before), Some(delta)) = (&mut store, &applied.delta) {
                    before.apply(delta);
                    assert_eq!(content(before), behind.content);
                }
                store = Some(convert_ref(applied.store));
                told.push((applied.index, applied.term, applied.eid));
            });
            let entries = loaded.unwrap().entries;
            let committed = entries.iter().filter(|entry| entry.index <= writer.known.commit_index);
            let with_data = |entry: &weir_log::clustered::LoggedEntry| {
                Some((entry.index, entry.term, entry.data?.eid))
            };
            assert_eq!(told, committed.filter_map(with_data).collect::<Vec<_>>(), "{reading:?}");
        }
    }
}

fn convert_ref(store: &Store) -> Store {
    let mut copy = Store::new(Arc::clone(store.schema()), 7);
    for (table, _) in store.schema().table_ids() {
        for row in store.table(table).iter() {
            let _: &Row = row;
            copy.insert(table, row.clone());
        }
    }
    copy
}

#[test]
fn a_snapshot_that_was_sent_becomes_rows() {
    let writer = written(3, 60);
    let mut data = vec![];
    let mut sink = |piece: &[u8]| {
        data.extend_from_slice(piece);
        Ok::<(), ()>(())
    };
    stream_snapshot_data(&writer.store.snapshot(), 5, None, &mut sink).unwrap();
    for step in [1, 100, data.len()] {
        let mut reader = SnapshotReader::new(4);
        let mut rows = Vec::new();
        for piece in data.chunks(step) {
            reader.feed(piece).unwrap();
            rows.extend(reader.take_rows());
        }
        reader.end().unwrap();
        rows.extend(reader.take_rows());
        let mut store = Store::new(Arc::clone(reader.schema().unwrap()), 4);
        for (table, row) in rows {
            store.insert(table, row);
        }
        assert_eq!(content(&store), content(&writer.store));
        let mut cut = SnapshotReader::new(4);
        let fed = data[..data.len() - 1].chunks(step).all(|piece| cut.feed(piece).is_ok());
        assert!(fed && cut.end().is_err());
    }
    for bad in ["[]", "{}", "[null,{}]", "[{},{}]", "[1", "[null,null]", ""] {
        let mut reader = SnapshotReader::new(4);
        assert!(reader.feed(bad.as_bytes()).is_err() || reader.end().is_err(), "{bad}");
    }
}

#[test]
fn edits_are_decoded_without_changing_anything() {
    for seed in 0..40 {
        let writer = written(seed, 40);
        let mut random = Random::new(seed + 1000);
        let mut store = convert_ref(&writer.store);
        let mut decoder = Decoder::new(store.schema());
        for _ in 0..10 {
            let before = content(&store);
            let delta = transaction(&mut random, &store);
            store.apply(&delta);
            let mut json = vec![];
            write_transaction_json(Form::Whole, &mut json, &delta, &store, 5, None);
            store.apply(&delta.clone().inverse());
            let text: Text<'_> = weir_json::validate(&json).unwrap();
            let mut uuids = weir_data::UuidSource::new([1, 2, 3, 4]);
            let edits = decoder.decode(text, &store, &mut uuids).unwrap();
            assert_eq!(content(&store), before);
            let mut named: Vec<_> = edits.iter().map(|edit| (edit.table, edit.uuid)).collect();
            let mut changed: Vec<_> = delta.rows().map(|(table, uuid, _)| (table, uuid)).collect();
            named.sort_unstable();
            changed.sort_unstable();
            assert_eq!(named, changed);
            store.apply(&delta);
        }
    }
}

const SCHEMA: &str = r#"{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}"#;

fn header(servers: &str, data: &str) -> String {
    format!(
        r#"{{"server_id":"{S1}","local_address":"unix:a","name":"D","cluster_id":"{CID}",
        "prev_servers":{{{servers}}},"prev_index":1,"prev_term":1,"prev_eid":"{EID}",
        "prev_data":{data}}}"#
    )
}

fn usual_header() -> String {
    header(&format!(r#""{S1}":"unix:a","{S2}":"unix:b""#), &format!("[{SCHEMA},{{}}]"))
}

fn file(records: &[&str]) -> Vec<u8> {
    let mut file = vec![];
    for record in records {
        write_clustered_record(&mut file, record.as_bytes());
    }
    file
}

/// Records behind the header, and what the reference says of them.
fn refused() -> Vec<(Vec<String>, String)> {
    let at = |record: u64| format!("ovsdb error: error reading record {record} from D log: ");
    let entry = r#"{"term":2,"index":2}"#;
    let (one, two) =
        (format!(r#"{{"term":2,"vote":"{S1}"}}"#), format!(r#"{{"term":2,"vote":"{S2}"}}"#));
    let commit = r#"{"commit_index":2}"#;
    let cases: Vec<(Vec<&str>, String)> = vec![
        (
            vec![r#"{"note":"left"}"#],
            at(1)
                + "record 1 indicates server has left the cluster; it cannot be added back (use \
                   \"ovsdb-tool join-cluster\" to add a new server)",
        ),
        (
            vec![r#"{"term":2,"index":4}"#],
            at(1) + "record 1 with index 4 skips past expected index 2",
        ),
        (
            vec![entry, commit, r#"{"term":2,"index":1}"#],
            at(3)
                + "record 3 attempts to truncate log from 3 to 1 entries, but commit index is \
                   already 2",
        ),
        (
            vec![entry, r#"{"term":1,"index":3}"#],
            at(2) + "record 2 with index 3 term 1 precedes previous entry's term 2",
        ),
        (
            vec![&one, &two],
            at(2)
                + "record 2 votes for 1111 in term 2 but a previous record for the same term \
                   voted for 2222",
        ),
        (
            vec![&one, r#"{"term":1,"vote":"22222222-2222-4222-8222-222222222222"}"#],
            at(2) + "record 2 votes for term 1 but current term is 2",
        ),
        (
            vec![r#"{"commit_index":7}"#],
            at(1) + "record 1 advances commit index to 7 but last log index is 1",
        ),
        (
            vec![entry, commit, r#"{"commit_index":1}"#],
            at(3) + "record 3 regresses commit index from 2 to 1",
        ),
        (
            vec![r#"{"foo":2}"#],
            r#"syntax "{"foo":2}": syntax error: error reading record 1 from D log: Parsing raft log record failed: Required 'term' member is missing."#.to_owned(),
        ),
        (
            vec![r#"{"term":2,"foo":1}"#],
            r#"syntax "{"foo":1,"term":2}": syntax error: error reading record 1 from D log: Parsing raft log record failed: Member 'foo' is present but not allowed here."#.to_owned(),
        ),
    ];
    let owned = |(records, text): (Vec<&str>, String)| {
        (records.into_iter().map(str::to_owned).collect(), text)
    };
    cases.into_iter().map(owned).collect()
}

#[test]
fn what_makes_no_sense_is_refused_in_the_words_of_the_reference() {
    let folder = is_installed().then(|| Folder::new("refused"));
    let good = usual_header();
    for (records, expected) in refused() {
        let records = std::iter::once(good.as_str()).chain(records.iter().map(String::as_str));
        let file = file(&records.collect::<Vec<_>>());
        for reading in READINGS {
            let error = read(&file, reading).unwrap_err().to_string();
            assert_eq!(error, expected, "{reading:?}");
        }
        if let Some(folder) = &folder {
            folder.write("db", &file);
            let args = ["--remote=punix:socket", "--unixctl=control", "-vconsole:off", "db"];
            let (_, error) = output(folder, "ovsdb-server", &args);
            assert_eq!(error.trim_end(), format!("ovsdb-server: {expected}"));
        }
    }
    // The reference logs these and serves nothing.
    let data = |data: &str| format!(r#"{{"term":2,"index":2,"eid":"{EID}","data":{data}}}"#);
    for (records, expected) in [
        (vec![header("", "[null,{}]")], "must have at least one server"),
        (vec![good.clone(), data(r#"[null,{"Q":{}}]"#)], "No table named Q."),
        (vec![good.clone(), data("[null]")], "invalid commit format"),
        (
            vec![good, data(&format!(r#"[null,{{"T":{{"{EID}":null}}}}]"#))],
            "deletes row 55555555-5555-4555-8555-555555555555 that does not exist",
        ),
    ] {
        let mut records: Vec<&str> = records.iter().map(String::as_str).collect();
        records.push(r#"{"commit_index":2}"#);
        for reading in READINGS {
            let error = read(&file(&records), reading).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}: {reading:?}");
        }
        if records.len() == 3 {
            // As long as it is not committed nobody looks at it.
            records.pop();
            assert!(read(&file(&records), WHOLE).is_ok());
        }
    }
    let no_schema = header(&format!(r#""{S1}":"unix:a""#), "[null,{}]");
    for reading in READINGS {
        let error = read(&file(&[&no_schema]), reading).unwrap_err().to_string();
        assert_eq!(error, "ovsdb error: data without schema");
    }
}

#[test]
fn unusual_spellings_are_read_as_a_whole() {
    let header = usual_header().replace("prev_data", "prev\\u005fdata");
    let uuid = "12345678-1234-1234-1234-123456789abc";
    let entry = format!(
        r#"{{ "data" : [ null , {{"\u0054":{{"{uuid}":{{"n":1}}}},"T":{{"{uuid}":{{"n":7}}}}}} ] ,
        "eid":"{EID}","index":2,"term":2}}"#
    );
    let second = format!(
        r#"{{"eid":"{EID}","d\u0061ta":[null,{{"T":{{"{uuid}":{{"n":8,"n":9}}}}}}],"index":3,"term":2}}"#
    );
    for commit_index in 1..4 {
        let commit = format!(r#"{{"commit_index":{commit_index}}}"#);
        let file = file(&[&header, &entry, &second, &commit]);
        for reading in READINGS {
            let loaded = read(&file, reading).unwrap();
            let rows = content(loaded.store.as_ref().unwrap());
            let n: Vec<&str> = rows.values().map(|values| values[0].as_str()).collect();
            let expected: &[&str] = [&[] as &[&str], &["n=7"], &["n=9"]][commit_index - 1];
            assert_eq!(n, expected, "{reading:?}");
            let places: Vec<_> = loaded.entries.iter().map(|entry| entry.data.unwrap()).collect();
            for place in places {
                let text = &file[place.offset as usize..][..place.len as usize];
                assert!(text.starts_with(b"[") && text.ends_with(b"]"));
            }
        }
    }
}

/// Records whose checksums are right, whatever is in them, are read alike however they are fed.
#[test]
fn bent_records_are_read_alike() {
    let (mut good, mut bad) = (0, 0);
    for seed in 0..400 {
        let Writer { file, states, .. } = written(seed % 8, 12);
        let mut random = Random::new(seed + 5000);
        let ends: Vec<usize> = std::iter::once(0).chain(states.iter().map(|s| s.0)).collect();
        let bent = random.below(ends.len() - 1);
        let (mut again, mut is_json) = (vec![], true);
        for (at, range) in ends.windows(2).enumerate() {
            let record = &file[range[0]..range[1]];
            let body = record.iter().position(|byte| *byte == b'\n').unwrap() + 1;
            let mut body = record[body..record.len() - 1].to_vec();
            if at == bent {
                let place = random.below(body.len());
                match random.below(4) {
                    0 => drop(body.remove(place)),
                    1 => body.insert(place, *random.pick(b" 0\"{}[],:\\n")),
                    2 => body[place] = *random.pick(b" 19\"{}[],:\\a"),
                    _ => {
                        let from = random.below(body.len());
                        let piece = body[from..body.len().min(from + 30)].to_vec();
                        body.splice(place..place, piece);
                    }
                }
            }
            // Data that is not held as a whole is no JSON only when it is applied.
            is_json &= at == 0 || weir_json::validate(&body).is_ok();
            write_clustered_record(&mut again, &body);
        }
        let told = |reading| match read(&again, reading) {
            Ok(loaded) => {
                let tail = match loaded.tail {
                    Tail::None => None,
                    Tail::Torn { .. } => Some(0),
                    Tail::Damaged { good_offset, .. } => Some(good_offset),
                };
                Ok((Known::of(&loaded, &again), loaded.valid_len, tail))
            }
            Err(error) => Err(error.to_string()),
        };
        let expected = told(WHOLE);
        if expected.is_ok() {
            good += 1
        } else {
            bad += 1
        }
        for reading in READINGS.iter().filter(|reading| is_json || reading.pieces_min > 200) {
            assert_eq!(told(*reading), expected, "{seed} {reading:?}");
        }
    }
    assert!(good > 50 && bad > 50, "{good} {bad}");
}

/// Files of three servers of the reference.
const FILES: [(&str, &[u8]); 7] = [
    ("1.db", include_bytes!("../../cli/tests/clustered/1.db")),
    ("2.db", include_bytes!("../../cli/tests/clustered/2.db")),
    ("3.db", include_bytes!("../../cli/tests/clustered/3.db")),
    ("late1.db", include_bytes!("../../cli/tests/clustered/late1.db")),
    ("late2.db", include_bytes!("../../cli/tests/clustered/late2.db")),
    ("late3.db", include_bytes!("../../cli/tests/clustered/late3.db")),
    ("joining.db", include_bytes!("../../cli/tests/clustered/joining.db")),
];

#[test]
fn files_of_real_servers_are_read() {
    let folder = is_installed().then(|| Folder::new("real"));
    let mut compared = 0;
    for (name, file) in FILES {
        for reading in READINGS {
            let loaded = match read(file, reading) {
                Ok(loaded) => loaded,
                Err(error) => {
                    let text = error.to_string();
                    assert!(name == "late3.db" && text.contains("has left the cluster"), "{text}");
                    continue;
                }
            };
            assert_eq!(loaded.tail, Tail::None);
            assert_eq!(loaded.remotes.is_empty(), name != "joining.db", "{name}");
            let Some(store) = &loaded.store else {
                assert_eq!(name, "joining.db");
                continue;
            };
            assert!(
                loaded.term > 0 && loaded.commit_index > 0 && !loaded.latest.servers.is_empty()
            );
            let last = loaded.entries.last().map_or(loaded.commit_index, |entry| entry.index);
            if let (Some(folder), true) = (&folder, last == loaded.commit_index) {
                folder.write(name, file);
                let _ = std::fs::remove_file(folder.path("standalone"));
                let args = ["cluster-to-standalone", "standalone", name];
                assert_eq!(output(folder, "ovsdb-tool", &args).1, "");
                let standalone = sample::load(&folder.read("standalone")).unwrap();
                assert_eq!(content(&standalone.store), content(store), "{name} {reading:?}");
                compared += 1;
            }
        }
    }
    assert!(folder.is_none() || compared > READINGS.len(), "{compared}");
}

#[test]
fn what_the_packaged_tool_creates_is_read() {
    if !is_installed() {
        return;
    }
    let folder = Folder::new("created");
    folder.write("schema", SCHEMA.as_bytes());
    let create = ["--election-timer=1500", "create-cluster", "db", "schema", "unix:a"];
    assert_eq!(output(&folder, "ovsdb-tool", &create).1, "");
    let join = ["join-cluster", "joining", "D", "unix:b", "unix:a"];
    assert_eq!(output(&folder, "ovsdb-tool", &join).1, "");
    for reading in READINGS {
        let created = read(&folder.read("db"), reading).unwrap();
        assert_eq!((created.name.as_str(), created.local_address.as_str()), ("D", "unix:a"));
        assert_eq!((created.commit_index, created.entries.len()), (1, 1));
        assert_eq!(created.committed.election_timer, 1000);
        assert_eq!(created.latest.election_timer, 1500);
        assert_eq!(created.committed.servers.len(), 1);
        assert_eq!(created.snapshot.map(|snapshot| (snapshot.index, snapshot.term)), Some((1, 1)));
        let joining = read(&folder.read("joining"), reading).unwrap();
        assert_eq!(joining.remotes, ["unix:a"]);
        assert!(joining.store.is_none() && joining.cluster_id.is_none());
        assert_eq!((joining.term, joining.commit_index), (0, 0));
    }
}
