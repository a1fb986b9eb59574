//! `comment` (RFC 7047 §5.2.9): words for the log.

use weir_data::parser::STRING;

use super::{Op, OpResult, Run};

pub(super) fn run(run: &mut Run<'_, '_>, op: &mut Op<'_, '_>) -> OpResult {
    let Some(words) = op.parser.string("comment", STRING) else { return Ok(()) };
    match &mut run.comment {
        Some(comment) => {
            comment.push('\n');
            comment.push_str(&words);
        }
        none => *none = Some(words),
    }
    run.write_empty();
    Ok(())
}
