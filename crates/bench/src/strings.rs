//! `weir bench strings`: a long string with quotes and control characters is read back.
//!
//! Each of them is escaped when the server writes the row. What quotes and control characters
//! cost shows against the string without any.

use serde_json::{Value, json};

use crate::Error;
use crate::args::Args;
use crate::client::Client;
use crate::error::fail;
use crate::report::{About, Curve, Figures, Report};
use crate::rng::Rng;
use crate::rounds::{Bench, Floors};
use crate::running::{Running, Source};
use crate::stats::Latencies;

use std::time::Instant;

const DB: &str = "Bench_Strings";
const SIZES: [usize; 3] = [100_000, 10_000_000, 100_000_000];
/// Per cent of quotes and of control characters.
const MIXES: [(u64, u64); 4] = [(0, 0), (1, 0), (10, 0), (10, 1)];
/// Bytes read back at each size, and at least how often that is.
const VOLUME: usize = 200_000_000;
const READS_MIN: usize = 3;

/// Runs the scenario `strings`.
pub(crate) fn run(args: &mut Args, bench: &Bench) -> Result<Report, Error> {
    let sizes: Vec<usize> = args.list("--sizes")?.unwrap_or_else(|| SIZES.to_vec());
    let volume = args.value("--volume")?.unwrap_or(VOLUME);
    args.finish("strings")?;
    let about = About {
        scenario: "strings".into(),
        title: format!("strings: {sizes:?} bytes with 0-10 % quotes and 0-1 % control characters"),
        standard: sizes == SIZES,
    };
    let schema = schema();
    bench.rounds(about, Floors::Bulk, &mut |peer| {
        let mut figures = Figures::default();
        for &size in &sizes {
            let running = bench.start(peer, Source::Schema(&schema))?;
            bench.progress.phase(&format!("{size} bytes"), MIXES.len());
            let mut points = Vec::new();
            for (n, mix) in MIXES.into_iter().enumerate() {
                let reads = (volume / size).max(READS_MIN);
                let cpu = measure(size, mix, reads, &running, peer.is_floor(), &mut figures);
                let cpu = cpu.map_err(|e| running.explain(&peer.name, &e))?;
                points.extend(cpu.map(|cpu| ((mix.0 + mix.1) as f64, cpu)));
                bench.progress.at(n + 1);
            }
            figures.draw(Curve {
                plot: format!("cost of escapes, {size} bytes"),
                axes: ["% of characters escaped".into(), "server CPU us/read".into()],
                log: [false; 2],
                points,
            });
            bench.progress.note(&format!("  {size} bytes"));
        }
        Ok(figures)
    })
}

pub(crate) fn schema() -> Value {
    json!({"name": DB, "version": "1.0.0", "tables": {"Text": {
        "isRoot": true,
        "indexes": [["name"]],
        "columns": {"name": {"type": "string"}, "text": {"type": "string"}}
    }}})
}

/// A string as JSON, from quote to quote.
fn text(size: usize, (quotes, controls): (u64, u64)) -> Vec<u8> {
    let mut rng = Rng::new(size as u64);
    let mut out = Vec::with_capacity(size + size / 4);
    out.push(b'"');
    for _ in 0..size {
        match rng.below(100) {
            n if n < quotes => out.extend_from_slice(br#"\""#),
            n if n < quotes + controls => out.extend_from_slice(br"\u0001"),
            n => out.push(b'a' + (n % 26) as u8),
        }
    }
    out.push(b'"');
    out
}

/// Stores the string, reads it back, takes it away.
fn measure(
    size: usize,
    mix: (u64, u64),
    reads: usize,
    running: &Running,
    floor: bool,
    figures: &mut Figures,
) -> Result<Option<f64>, Error> {
    let section = format!("{size} bytes, {} % quotes, {} % control", mix.0, mix.1);
    let mut client = Client::connect(&running.target)?;
    let text = text(size, mix);
    let name = r#"[["name","==","text"]]"#;
    let mut insert = format!(
        r#"{{"id":0,"method":"transact","params":["{DB}",{{"op":"insert","table":"Text","row":{{"name":"text","text":"#
    )
    .into_bytes();
    insert.extend_from_slice(&text);
    insert.extend_from_slice(b"}}]}");
    if floor {
        client.call("floor", &json!([insert.len()]))?;
    }
    let (start, before) = (Instant::now(), running.cpu_nanos()?);
    let reply = client.exchange(&insert)?;
    if memchr::memmem::find(reply, br#""uuid""#).is_none() {
        fail!(
            "the string was answered {}",
            String::from_utf8_lossy(&reply[..reply.len().min(500)])
        );
    }
    let stored = start.elapsed();
    let stored_cpu = running.cpu_nanos()?.zip(before).map(|(after, before)| after - before);
    let select = format!(
        r#"{{"id":0,"method":"transact","params":["{DB}",{{"op":"select","table":"Text","where":{name},"columns":["text"]}}]}}"#
    );
    let (mut latencies, before) = (Latencies::default(), running.cpu_nanos()?);
    for _ in 0..reads {
        let start = Instant::now();
        let reply = client.exchange(select.as_bytes())?;
        latencies.push(start.elapsed());
        if memchr::memmem::find(reply, &text).is_none() {
            fail!("the string did not come back as it was stored");
        }
    }
    let cpu = running.cpu_nanos()?.zip(before).map(|(after, before)| after - before);
    let cpu = cpu.map(|cpu| cpu as f64 / 1e3 / reads as f64);
    let delete = json!({"op": "delete", "table": "Text", "where": []});
    client.transact(&json!([DB, delete]))?;
    let mut push = |name, digits, value| figures.push(&section, name, digits, value);
    if let Some(cpu) = cpu {
        push("read back, server CPU us", 1, cpu);
        push("server CPU ns/byte", 3, cpu * 1e3 / size as f64);
    }
    push("read back, p50 us", 1, latencies.percentile(50.0));
    push("store ms", 2, stored.as_secs_f64() * 1e3);
    if let Some(cpu) = stored_cpu {
        push("store, server CPU ms", 2, cpu as f64 / 1e6);
    }
    Ok(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_what_they_should() {
        let decoded: String = serde_json::from_slice(&text(10_000, (10, 1))).unwrap();
        assert_eq!(decoded.chars().count(), 10_000);
        let quotes = decoded.matches('"').count();
        let controls = decoded.matches('\u{1}').count();
        assert!((800..1200).contains(&quotes) && (50..150).contains(&controls));
        let plain: String = serde_json::from_slice(&text(1_000, (0, 0))).unwrap();
        assert!(plain.bytes().all(|byte| byte.is_ascii_lowercase()));
    }
}
