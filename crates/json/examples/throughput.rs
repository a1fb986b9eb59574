//! Prints how many MB/s the framer, the validator and the reader do, beside typed serde_json.
//!
//! `cargo run --release -p weir-json --example throughput [FILTER]`. The typed rows build the
//! same rows of atoms, sets and maps out of the same bytes; each figure is the best of
//! interleaved rounds.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::hint::black_box;
use std::time::Instant;
use weir_json::{Framer, Kind, Reader, Text, Value, validate};

/// An atom or a datum made of atoms. Strings are borrowed, so that what is measured is the
/// parser more than the allocator.
#[derive(Debug, PartialEq)]
enum Datum<'a> {
    Bool(bool),
    Integer(i64),
    Real(f64),
    String(Cow<'a, str>),
    Uuid(u128),
    Set(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

type Row<'a> = Vec<(Cow<'a, str>, Datum<'a>)>;

/// What is read: the columns of every row anywhere in the message.
#[derive(Debug, PartialEq, Default)]
struct Rows<'a>(Vec<Row<'a>>);

fn uuid(text: &str) -> u128 {
    let digit = |c: u8| u64::from((c & 0xf) + 9 * (c >> 6));
    let half = |text: &str| {
        let digits = text.bytes().filter(|&c| c != b'-');
        digits.fold(0, |all, c| all << 4 | digit(c))
    };
    match text.split_at_checked(18) {
        Some((high, low)) => u128::from(half(high)) << 64 | u128::from(half(low)),
        None => 0,
    }
}

// --- with the reader -------------------------------------------------------------------

fn text<'a>(string: Option<Cow<'a, [u8]>>) -> Cow<'a, str> {
    match string.unwrap_or_default() {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).unwrap_or_default().into(),
        Cow::Owned(bytes) => String::from_utf8(bytes).unwrap_or_default().into(),
    }
}

fn read_datum<'a>(reader: &mut Reader<'a>) -> Datum<'a> {
    if let Some(string) = reader.string() {
        return Datum::String(text(Some(string)));
    }
    if reader.begin_array() {
        reader.next_element();
        let tag = reader.string();
        reader.next_element();
        let datum = match tag.as_deref() {
            Some(b"uuid") => Datum::Uuid(uuid(&text(reader.string()))),
            Some(b"map") => {
                let mut pairs = Vec::new();
                reader.begin_array();
                while reader.next_element() {
                    reader.begin_array();
                    reader.next_element();
                    let key = read_datum(reader);
                    reader.next_element();
                    pairs.push((key, read_datum(reader)));
                    reader.next_element();
                }
                Datum::Map(pairs)
            }
            _ => {
                let mut elements = Vec::new();
                reader.begin_array();
                while reader.next_element() {
                    elements.push(read_datum(reader));
                }
                Datum::Set(elements)
            }
        };
        reader.next_element();
        return datum;
    }
    if let Some(integer) = reader.integer() {
        return Datum::Integer(integer);
    }
    match reader.real() {
        Some(real) => Datum::Real(real),
        None => Datum::Bool(reader.bool().unwrap_or_default()),
    }
}

fn read_row<'a>(reader: &mut Reader<'a>) -> Row<'a> {
    let mut row = Vec::new();
    reader.begin_object();
    while let Some(key) = reader.next_key() {
        row.push((text(Some(key)), read_datum(reader)));
    }
    row
}

/// `{"params":[db, {"row":{..}}, ..]}`.
fn read_rows(text: Text<'_>) -> Rows<'_> {
    let mut rows = Rows::default();
    let mut reader = text.reader();
    reader.begin_object();
    while let Some(key) = reader.next_key() {
        if key.as_ref() != b"params" {
            reader.text();
            continue;
        }
        reader.begin_array();
        while reader.next_element() {
            if !reader.begin_object() {
                reader.text();
                continue;
            }
            while let Some(key) = reader.next_key() {
                match key.as_ref() {
                    b"row" => rows.0.push(read_row(&mut reader)),
                    _ => drop(reader.text()),
                }
            }
        }
    }
    rows
}

// --- with serde ------------------------------------------------------------------------

struct DatumVisitor;

/// A string that is borrowed where it has no escapes.
#[derive(serde::Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for DatumVisitor {
    type Value = Datum<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a datum")
    }
    fn visit_bool<E>(self, b: bool) -> Result<Datum<'de>, E> {
        Ok(Datum::Bool(b))
    }
    fn visit_i64<E>(self, i: i64) -> Result<Datum<'de>, E> {
        Ok(Datum::Integer(i))
    }
    fn visit_u64<E>(self, i: u64) -> Result<Datum<'de>, E> {
        Ok(Datum::Integer(i as i64))
    }
    fn visit_f64<E>(self, r: f64) -> Result<Datum<'de>, E> {
        Ok(Datum::Real(r))
    }
    fn visit_str<E>(self, s: &str) -> Result<Datum<'de>, E> {
        Ok(Datum::String(s.to_owned().into()))
    }
    fn visit_borrowed_str<E>(self, s: &'de str) -> Result<Datum<'de>, E> {
        Ok(Datum::String(s.into()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Datum<'de>, A::Error> {
        let tag: Option<Borrowed<'de>> = seq.next_element()?;
        Ok(match tag.as_ref().map_or("", |tag| &tag.0) {
            "uuid" => {
                let id: Option<Borrowed<'de>> = seq.next_element()?;
                Datum::Uuid(id.map_or(0, |id| uuid(&id.0)))
            }
            "map" => Datum::Map(seq.next_element()?.unwrap_or_default()),
            _ => Datum::Set(seq.next_element()?.unwrap_or_default()),
        })
    }
}

impl<'de> Deserialize<'de> for Datum<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DatumVisitor)
    }
}

struct Columns<'a>(Row<'a>);

struct ColumnsVisitor;

impl<'de> Visitor<'de> for ColumnsVisitor {
    type Value = Columns<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns<'de>, A::Error> {
        let mut row = Vec::new();
        while let Some((key, datum)) = map.next_entry::<Borrowed<'de>, _>()? {
            row.push((key.0, datum));
        }
        Ok(Columns(row))
    }
}

impl<'de> Deserialize<'de> for Columns<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ColumnsVisitor)
    }
}

struct Operation<'a>(Option<Row<'a>>);

struct OperationVisitor;

impl<'de> Visitor<'de> for OperationVisitor {
    type Value = Operation<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a database name or operation")
    }
    fn visit_str<E>(self, _: &str) -> Result<Operation<'de>, E> {
        Ok(Operation(None))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Operation<'de>, A::Error> {
        let mut row = None;
        while let Some(key) = map.next_key::<Borrowed<'de>>()? {
            if key.0 == "row" {
                row = Some(map.next_value::<Columns>()?.0);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Operation(row))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Operation<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OperationVisitor)
    }
}

#[derive(serde::Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    params: Vec<Operation<'a>>,
}

fn serde_rows(input: &[u8]) -> Rows<'_> {
    let message: Message = serde_json::from_slice(input).expect("valid");
    Rows(message.params.into_iter().filter_map(|operation| operation.0).collect())
}

// --- inputs ----------------------------------------------------------------------------

/// Any 128 bits as a uuid.
fn uuid_text(n: u64) -> String {
    let mix = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    let (a, b) = (mix(n), mix(mix(n) + 1));
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff
    )
}

/// A logical switch port, as a CMS inserts it.
fn operation(out: &mut String, n: u64) {
    let id = uuid_text(n);
    let _ = write!(
        out,
        concat!(
            r#",{{"op":"insert","table":"Logical_Switch_Port","row":{{"name":"{id}","#,
            r#""addresses":["set",["0a:00:00:00:{:02x}:{:02x} 10.0.{}.{}","unknown"]],"#,
            r#""enabled":true,"tag":{},"options":["map",[["requested-chassis","#,
            r#""compute-{}.example.org"],["mcast_flood_reports","true"]]],"#,
            r#""external_ids":["map",[["neutron:cidrs","10.0.0.5/24"],"#,
            r#"["neutron:device_owner","network:distributed"],"#,
            r#"["neutron:revision_number","{n}"]]],"dhcpv4_options":["uuid","{}"],"#,
            r#""port_security":["set",[]]}},"uuid-name":"row{n}"}}"#,
        ),
        n & 255,
        n >> 8 & 255,
        n >> 8 & 255,
        n & 255,
        n % 4096,
        n % 500,
        uuid_text(n + 7),
        id = id,
        n = n,
    );
}

fn operations(count: u64) -> Vec<u8> {
    let mut text = r#"{"method":"transact","params":["OVN_Northbound""#.to_owned();
    for n in 0..count {
        operation(&mut text, n);
    }
    text.push_str("],\"id\":7}");
    text.into_bytes()
}

/// One column of many strings, as an address set.
fn strings(count: u64) -> Vec<u8> {
    let mut text = concat!(
        r#"{"method":"transact","params":["OVN_Northbound",{"op":"update","#,
        r#""table":"Address_Set","where":[],"row":{"addresses":["set",["#,
    )
    .to_owned();
    for n in 0..count {
        let comma = if n == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\"{}-{}-address-{}\"", uuid_text(n), uuid_text(n + 1), n);
    }
    text.push_str("]]}}],\"id\":7}");
    text.into_bytes()
}

// --- measuring -------------------------------------------------------------------------

type Job<'a> = (&'static str, Box<dyn Fn() + 'a>);

/// What is measured on a message and the text that it was validated to.
fn jobs<'a>(input: &'a [u8], text: Text<'a>) -> Vec<Job<'a>> {
    vec![
        ("framer", Box::new(|| drop(black_box(Framer::new().feed(input))))),
        (
            "framer, 4 KiB pieces",
            Box::new(|| {
                let mut framer = Framer::new();
                for piece in input.chunks(4096) {
                    drop(black_box(framer.feed(piece)));
                }
            }),
        ),
        ("validate", Box::new(|| drop(black_box(validate(input))))),
        (
            "validate + skip",
            Box::new(|| {
                black_box(skip(input));
            }),
        ),
        (
            "read, nothing kept",
            Box::new(move || {
                black_box(walk(&mut text.reader()));
            }),
        ),
        ("typed read", Box::new(move || drop(black_box(read_rows(text))))),
        (
            "validate + typed read",
            Box::new(|| drop(black_box(read_rows(validate(input).expect("valid"))))),
        ),
        ("validate + write", {
            let out = std::cell::RefCell::new(Vec::new());
            Box::new(move || {
                let mut out = out.borrow_mut();
                out.clear();
                validate(input).expect("valid").write(&mut out);
            })
        }),
        ("Value::parse", Box::new(|| drop(black_box(Value::parse(input))))),
        ("serde_json typed", Box::new(|| drop(black_box(serde_rows(input))))),
        (
            "serde_json ignored",
            Box::new(|| {
                drop(black_box(serde_json::from_slice::<IgnoredAny>(input)));
            }),
        ),
    ]
}

fn measure(name: &str, input: &[u8], filter: &str) {
    const ROUNDS: usize = 15;
    const BYTES_A_ROUND: usize = 8 << 20;
    let text = validate(input).expect("valid");
    assert_eq!(read_rows(text), serde_rows(input), "{name}");
    let jobs = jobs(input, text);
    let times = (BYTES_A_ROUND / input.len()).max(1);
    let mut best: BTreeMap<usize, f64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for (i, (label, job)) in jobs.iter().enumerate() {
            if !label.contains(filter) {
                continue;
            }
            let start = Instant::now();
            for _ in 0..times {
                job();
            }
            let rate = (times * input.len()) as f64 / start.elapsed().as_secs_f64() / 1e6;
            let best = best.entry(i).or_default();
            *best = best.max(rate);
        }
    }
    println!("{name}: {} bytes", input.len());
    for (i, rate) in best {
        println!("  {:22} {rate:8.0} MB/s", jobs.get(i).map_or("", |job| job.0));
    }
}

/// Reads every value and keeps nothing.
fn walk(reader: &mut Reader<'_>) -> usize {
    if let Some(string) = reader.string() {
        return string.len();
    }
    let mut sum = 0;
    if reader.begin_array() {
        while reader.next_element() {
            sum += walk(reader);
        }
    } else if reader.begin_object() {
        while let Some(key) = reader.next_key() {
            sum += key.len() + walk(reader);
        }
    } else if let Some(integer) = reader.integer() {
        sum += integer as usize;
    } else {
        reader.text();
    }
    sum
}

/// Goes over the top levels of a message and skips what is in them.
fn skip(input: &[u8]) -> usize {
    let text = validate(input).expect("valid");
    let kinds = text.members().into_iter().flatten().map(|(_, value)| value.kind());
    kinds.filter(|kind| *kind == Kind::Array).count()
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    measure("small transaction", &operations(1), &filter);
    measure("1000 strings", &strings(1000), &filter);
    measure("large transaction", &operations(40_000), &filter);
}
