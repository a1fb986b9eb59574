//! What a peer shows in a handshake, and what files hold: any bytes are judged without a panic, and
//! nobody is believed who is not signed for. The first byte says what the rest is; certificates are
//! DER, each behind its length in two bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_net::tls::fuzzing::{believed, read_lists, read_pair};

/// A root, and all that it has ever signed: whatever the corpus holds may turn up in an input.
const ROOT: &[u8] = include_bytes!("../corpus/certificates/root.der");
const LEAF: &[u8] = include_bytes!("../corpus/certificates/leaf.der");
const OTHER: &[u8] = include_bytes!("../corpus/certificates/other.der");

/// All three are alive then.
const NOW_S: u64 = 1_800_000_000;

/// The parts of a list, each behind its length.
fn parts(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        let (part, behind) = behind.split_at(length);
        parts.push(part);
        rest = behind;
    }
    parts
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, rest)) = input.split_first() else { return };
    match kind {
        b'k' => {
            let middle = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
            let (key, certificate) = rest.split_at(middle);
            read_pair(key, certificate);
        }
        b'l' => read_lists(&String::from_utf8_lossy(rest)),
        // Everything is presented, the root is trusted: only it and its leaves are believed.
        b'p' => {
            if let Some(signed) = believed(&parts(rest), &[ROOT], NOW_S) {
                let holds = |der: &[u8]| der.windows(signed.len()).any(|part| part == signed);
                assert!([ROOT, LEAF, OTHER].into_iter().any(holds), "a stranger is believed");
            }
        }
        // Whoever chooses the authorities may be believed; it only must end.
        _ => {
            let parts = parts(rest);
            let _ = believed(&parts, &parts, NOW_S);
        }
    }
});
