//! The parts of an item: integers in eight bytes, the least significant first, and byte strings
//! behind their length.

/// An item is not what this program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What is left of an item that is being read.
pub struct Fields<'a>(&'a [u8]);

/// Appends an integer.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a byte string.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends something that may be missing.
pub(super) fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl Fn(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

/// Appends a result whose error is a text.
pub fn put_result<T>(out: &mut Vec<u8>, result: Result<T, &String>, put: impl Fn(&mut Vec<u8>, T)) {
    out.push(u8::from(result.is_ok()));
    match result {
        Ok(value) => put(out, value),
        Err(error) => put_bytes(out, error.as_bytes()),
    }
}

impl<'a> Fields<'a> {
    /// The parts of this item.
    pub fn new(item: &'a [u8]) -> Self {
        Self(item)
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// Something is.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// One byte.
    ///
    /// # Errors
    /// The item has ended, as in all that follow.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1)?.first().copied().ok_or(Malformed)
    }

    /// An integer.
    ///
    /// # Errors
    /// See [`Fields::byte`].
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?.try_into().map_err(|_| Malformed)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        self.u64().map(u64::cast_signed)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        i32::try_from(self.i64()?).map_err(|_| Malformed)
    }

    /// Yes or no.
    ///
    /// # Errors
    /// See [`Fields::byte`].
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// A byte string.
    ///
    /// # Errors
    /// See [`Fields::byte`].
    pub fn bytes(&mut self) -> Result<Vec<u8>, Malformed> {
        let count = self.u64()?;
        self.take(count).map(<[u8]>::to_vec)
    }

    /// A byte string that is text.
    ///
    /// # Errors
    /// See [`Fields::byte`].
    pub fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    pub(super) fn option<T>(
        &mut self,
        get: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.flag()? { get(self).map(Some) } else { Ok(None) }
    }

    /// A result whose error is a text.
    ///
    /// # Errors
    /// See [`Fields::byte`].
    pub fn result<T>(
        &mut self,
        get: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Result<T, String>, Malformed> {
        if self.flag()? { get(self).map(Ok) } else { self.text().map(Err) }
    }

    /// A list: a number, and behind it as many values.
    ///
    /// # Errors
    /// See [`Fields::byte`].
    pub fn list<T>(
        &mut self,
        get: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        // Each takes at least a byte, so a lie about the number ends soon.
        let count = self.u64()?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(get(self)?);
        }
        Ok(list)
    }
}
