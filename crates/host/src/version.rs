//! What the server calls itself.

/// The Open vSwitch release whose behaviour Weir has; scripts compare it.
pub const OVS_VERSION: &str = "4.0.90";

/// The answer to `version` and `--version`, without the final newline: line 1 for scripts.
pub fn text(program: &str) -> String {
    format!("{}\nWeir {}", line(program), env!("CARGO_PKG_VERSION"))
}

/// Line 1 alone, which the server logs when it starts.
pub(crate) fn line(program: &str) -> String {
    format!("{program} (Open vSwitch) {OVS_VERSION}")
}
