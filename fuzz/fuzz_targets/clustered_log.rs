//! A clustered database's file that anybody could have written: headers and records are read or
//! refused with a reason, and what is written of them reads as the same. Records are given without
//! headers, one a line, so that the checksum keeps nothing out; a line that begins with `!` is taken
//! as it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_json::Text;
use weir_log::clustered::{Data, Header, Kind, Record, check_address};
use weir_log::record::{Magic, Reader, write_clustered_record};

/// The only record of a file.
fn only(bytes: &[u8], each: impl FnOnce(Text<'_>)) {
    let mut reader = Reader::new();
    reader.feed(bytes);
    let record = reader.next_record().expect("what is written is read").expect("a record");
    each(record.json().expect("JSON"));
}

fn header(text: Text<'_>) {
    let header = match Header::parse(text) {
        Ok(header) => header,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut once = Vec::new();
    header.write(&mut once);
    only(&once, |text| {
        let mut again = Vec::new();
        Header::parse(text).expect("what is written is a header").write(&mut again);
        assert_eq!(again, once);
    });
}

fn record(text: Text<'_>) {
    let record = match Record::parse(text) {
        Ok(record) => record,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Kind::Entry(entry) = &record.kind
        && let Some((data, _)) = entry.data
    {
        let _ = Data::parse(data);
    }
    let mut once = Vec::new();
    record.write(&mut once);
    only(&once, |text| {
        let mut again = Vec::new();
        Record::parse(text).expect("what is written is a record").write(&mut again);
        assert_eq!(again, once);
    });
}

fuzz_target!(|input: &[u8]| {
    let mut file = Vec::new();
    for line in input.split(|byte| *byte == b'\n') {
        match line {
            [b'!', raw @ ..] => file.extend_from_slice(&[raw, b"\n"].concat()),
            json => write_clustered_record(&mut file, json),
        }
    }
    let _ = check_address(&String::from_utf8_lossy(input));
    let mut reader = Reader::new();
    for piece in file.chunks(100) {
        reader.feed(piece);
    }
    while let Ok(Some(one)) = reader.next_record() {
        if let Ok(text) = one.json() {
            header(text);
            record(text);
        }
        if reader.magic() != Some(Magic::Clustered) {
            return;
        }
    }
});
