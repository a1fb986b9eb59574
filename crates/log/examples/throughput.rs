//! How fast a database file is read, and a compacted one written:
//! `cargo run --release -p weir-log --example throughput -- FILE [TIMES]`.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::time::Instant;

use weir_log::standalone::{Loaded, Replayer, write_snapshot};

/// Bytes read from the file at a time.
const PIECE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: throughput FILE [TIMES]")?;
    let times: usize = args.next().map_or(Ok(1), |times| times.parse())?;
    for _ in 0..times {
        let start = Instant::now();
        let mut file = File::open(&path)?;
        let mut replayer = Replayer::seekable(&path, 1, PIECE as u64);
        let mut piece = vec![0; PIECE];
        loop {
            let n = file.read(&mut piece)?;
            if n == 0 {
                break;
            }
            replayer.feed(&piece[..n])?;
            if let Some(offset) = replayer.again_from() {
                file.seek(SeekFrom::Start(offset))?;
            }
        }
        let loaded = replayer.finish()?;
        let seconds = start.elapsed().as_secs_f64();
        let rows: usize =
            loaded.schema.table_ids().map(|(id, _)| loaded.store.table(id).len()).sum();
        let megabytes = loaded.file_len as f64 / 1e6;
        println!(
            "{megabytes:.1} MB, {} records, {rows} rows, {} atoms: {seconds:.3} s, {:.0} MB/s{}",
            loaded.records,
            loaded.store.atoms(),
            megabytes / seconds,
            peak().map_or(String::new(), |peak| format!(", peak {peak}")),
        );
        if let Some(warning) = &loaded.warning {
            println!("{warning}");
        }
        write(&loaded);
        // Giving the rows back is not what is measured.
        std::mem::forget(loaded);
    }
    Ok(())
}

/// Writes a snapshot to nowhere.
fn write(loaded: &Loaded) {
    let start = Instant::now();
    let mut written = 0;
    let mut sink = |piece: &[u8]| {
        written += piece.len();
        Ok::<(), std::convert::Infallible>(())
    };
    let Ok(_) = write_snapshot(&loaded.store.snapshot(), 1, None, &mut sink);
    let (seconds, megabytes) = (start.elapsed().as_secs_f64(), written as f64 / 1e6);
    println!("snapshot of {megabytes:.1} MB: {seconds:.3} s, {:.0} MB/s", megabytes / seconds);
}

/// Most memory that the process had so far, where the system tells.
fn peak() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().to_owned())
}
