//! The weir programs.

fn main() {}
