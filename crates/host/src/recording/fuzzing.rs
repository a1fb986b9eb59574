//! What the fuzz target of recordings reaches (`fuzz/`). Built for fuzzing only.

use super::file::digest;
use super::item::{self, Item};
use super::{Reader, Recorded, put_u64};

/// The first line of a recording of the program `fuzz`.
const TITLE: &[u8] = b"weir recording 2 fuzz\n";

/// Bytes of an item.
const PIECE_BYTES: usize = 64;

/// Reads the bytes as a recording's file, as items of one whose frames are right, and as an item.
pub fn read_recording(bytes: &[u8]) {
    let mut framed = TITLE.to_vec();
    for piece in bytes.chunks(PIECE_BYTES) {
        put_u64(&mut framed, piece.len() as u64);
        put_u64(&mut framed, digest(piece));
        framed.extend_from_slice(piece);
    }
    let mut reader = Reader::new(framed.as_slice(), "fuzz").expect("a title of this version");
    for piece in bytes.chunks(PIECE_BYTES) {
        let item = reader.next_item().expect("what is written is read").expect("an item");
        assert_eq!(item, piece);
        read_item(&item);
    }
    assert!(matches!(reader.next_item(), Ok(None)));
    read_item(bytes);
    read_file(bytes);
}

/// Whatever is damaged is told, or ends it.
fn read_file(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes, "ovsdb-server") else { return };
    let mut end = reader.offset();
    loop {
        match reader.next_item() {
            Ok(Some(item)) => {
                end += 16 + item.len() as u64;
                assert!(reader.offset() == end && end <= bytes.len() as u64);
                read_item(&item);
            }
            Ok(None) => return,
            Err(error) => return assert!(error.to_string().starts_with("damaged at offset ")),
        }
    }
}

/// What is understood is written so that it is read alike.
fn read_item(bytes: &[u8]) {
    let Some(once) = Item::decode(bytes).ok().and_then(|item| write(&item)) else { return };
    let again = Item::decode(&once).expect("what is written is read");
    assert_eq!(write(&again), Some(once));
}

/// `None` for what has its content elsewhere.
fn write(item: &Item) -> Option<Vec<u8>> {
    match item {
        Item::Event(now, Recorded::Whole(event)) => Some(item::event(*now, event)),
        Item::Event(..) => None,
        item => Some(item.encode()),
    }
}
