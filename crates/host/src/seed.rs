//! Randomness from the system, read once: everything random in the core grows from it.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// 256 bits from getrandom(2).
///
/// # Errors
/// What getrandom(2) says.
pub fn seed() -> io::Result<[u64; 4]> {
    let mut bytes = [0_u8; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    let mut words = [0; 4];
    for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*chunk);
    }
    Ok(words)
}
