//! Putting messages together from JSON text.

/// A successful reply with this result, which is JSON text.
pub fn reply_result(id: &[u8], result: &[u8]) -> Vec<u8> {
    let mut out = result_head(id, result.len());
    out.extend_from_slice(result);
    out.extend_from_slice(RESULT_TAIL);
    out
}

/// What a successful reply has before and behind its result.
pub fn reply_result_around(id: &[u8]) -> (Vec<u8>, &'static [u8]) {
    (result_head(id, 0), RESULT_TAIL)
}

/// What a successful reply has behind its result.
const RESULT_TAIL: &[u8] = b",\"error\":null}";

/// A successful reply up to its result, with room for `room` bytes of result and what is behind it.
fn result_head(id: &[u8], room: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(id.len() + room + 32);
    head.extend_from_slice(b"{\"id\":");
    head.extend_from_slice(id);
    head.extend_from_slice(b",\"result\":");
    head
}

/// An error reply, without the null `result` that RFC 7047 section 4.1 shows: so does the
/// reference. `error` is JSON text.
pub fn reply_error(id: &[u8], error: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(id.len() + error.len() + 32);
    out.extend_from_slice(b"{\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b",\"error\":");
    out.extend_from_slice(error);
    out.push(b'}');
    out
}

/// An error reply whose error is a bare string.
pub fn reply_error_string(id: &[u8], error: &str) -> Vec<u8> {
    let mut text = Vec::new();
    weir_json::write_string(&mut text, error);
    reply_error(id, &text)
}

/// A notification; `params` is the JSON array.
pub fn notification(method: &str, params: &[u8]) -> Vec<u8> {
    let mut out = notification_head(method);
    out.extend_from_slice(params);
    out.push(b'}');
    out
}

/// A notification up to its parameters, which `...}` must follow.
fn notification_head(method: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(b"{\"id\":null,\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    out
}

/// A request; `id` and the array `params` are JSON text.
pub fn request(id: &[u8], method: &str, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(id.len() + method.len() + params.len() + 32);
    out.extend_from_slice(b"{\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b",\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":");
    out.extend_from_slice(params);
    out.push(b'}');
    out
}
