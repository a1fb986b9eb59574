//! A socket that answers what `ovsdb-client restore` asks, takes the transaction, and counts its
//! rows: the program alone is measured, and a message may be of any size.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use memchr::memmem;
use serde_json::{Value, json};

use crate::Error;
use crate::dbfile;
use crate::error::fail;
use crate::frame::Framer;
use crate::large::DB;

const READ_SIZE: usize = 1 << 20;
/// Bytes kept of a message's beginning and end: what is not the transaction is in there.
const KEPT: usize = 4 << 10;
/// How an insertion looks.
const INSERT: &[u8] = br#""op":"insert""#;

/// Serves one client while `work` runs; the number of rows that it inserted.
pub(super) fn during(
    socket: &Path,
    schema: &Path,
    work: impl FnOnce(&str) -> Result<(), Error>,
) -> Result<usize, Error> {
    let schema = dbfile::read_schema(schema, "of Debian's package ovn-common")?;
    let listener = UnixListener::bind(socket).map_err(|e| Error::io("binding", socket, e))?;
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        serve(stream, &schema)
    });
    let worked = work(&format!("unix:{}", socket.display()));
    // One that never came is not waited for.
    let _ = UnixStream::connect(socket);
    let served = serving.join();
    worked?;
    served.unwrap_or_else(|_| fail!("the swallowing socket failed"))
}

fn serve(mut stream: UnixStream, schema: &Value) -> Result<usize, Error> {
    let (mut framer, mut message, mut inserts) = (Framer::default(), Message::default(), 0);
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(inserts);
        }
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            let end = framer.scan(rest);
            let (taken, left) = rest.split_at(end.unwrap_or(rest.len()));
            message.take(taken);
            rest = left;
            if end.is_some() {
                let done = std::mem::take(&mut message);
                inserts += done.inserts;
                let (method, id) = done.method_and_id();
                let result = match method.as_str() {
                    "list_dbs" => json!([DB]),
                    "get_schema" => schema.clone(),
                    "transact" => json!([]),
                    _ => json!({}),
                };
                // At once: the client may leave when it has the last brace.
                let reply = json!({"id": id, "result": result, "error": null}).to_string();
                stream.write_all(reply.as_bytes())?;
            }
        }
    }
}

/// A message that goes by.
#[derive(Default)]
struct Message {
    head: Vec<u8>,
    tail: Vec<u8>,
    inserts: usize,
}

impl Message {
    fn take(&mut self, bytes: &[u8]) {
        let room = KEPT.saturating_sub(self.head.len());
        self.head.extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        // Those that begin before these bytes and end in them.
        let before = self.tail.len().min(INSERT.len() - 1);
        let mut seam = self.tail.split_off(self.tail.len() - before);
        seam.extend_from_slice(bytes.get(..bytes.len().min(INSERT.len() - 1)).unwrap_or_default());
        self.inserts += memmem::find_iter(&seam, INSERT).count();
        self.inserts += memmem::find_iter(bytes, INSERT).count();
        self.tail.extend_from_slice(seam.get(..before).unwrap_or_default());
        self.tail.extend_from_slice(bytes);
        let excess = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..excess);
    }

    /// The members may come before or behind the parameters.
    fn method_and_id(&self) -> (String, i64) {
        let find = |key: &[u8]| {
            let head = self.head.get(..200).unwrap_or(&self.head);
            let at = |text: &[u8], at: usize| text.get(at + key.len()..).map(<[u8]>::to_vec);
            memmem::find(head, key)
                .and_then(|found| at(head, found))
                .or_else(|| memmem::rfind(&self.tail, key).and_then(|found| at(&self.tail, found)))
        };
        let method = find(br#""method":""#).unwrap_or_default();
        let end = memchr::memchr(b'"', &method).unwrap_or(0);
        let method = String::from_utf8_lossy(method.get(..end).unwrap_or_default()).into_owned();
        let id = find(br#""id":"#).unwrap_or_default();
        let digits: Vec<u8> = id.into_iter().take_while(u8::is_ascii_digit).collect();
        (method, String::from_utf8_lossy(&digits).parse().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        br#"{"id":7,"method":"transact","params":["D",{"op":"insert"},{"op":"insert"}]}"#;

    #[test]
    fn rows_are_counted_wherever_a_message_is_cut() {
        for size in 1..TEXT.len() {
            let mut message = Message::default();
            TEXT.chunks(size).for_each(|piece| message.take(piece));
            assert_eq!(message.inserts, 2, "pieces of {size}");
            assert_eq!(message.method_and_id(), ("transact".to_owned(), 7));
        }
    }

    #[test]
    fn what_stands_behind_the_parameters_is_found() {
        let mut message = Message::default();
        message.take(br#"{"params":["#);
        message.take(&[b' '; 9000]);
        message.take(br#"],"method":"list_dbs","id":12}"#);
        assert_eq!(message.method_and_id(), ("list_dbs".to_owned(), 12));
    }
}
