//! The texts of system errors as strerror(3) gives them.

use std::io;

/// The text of a system error without Rust's ` (os error N)`; other errors as they print.
pub fn strerror(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            let suffix = format!(" (os error {code})");
            text.strip_suffix(&suffix).unwrap_or(&text).to_owned()
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::strerror;
    use std::io;

    #[test]
    fn a_system_error_is_its_text_alone() {
        assert_eq!(strerror(&io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(strerror(&io::Error::from_raw_os_error(11)), "Resource temporarily unavailable");
        assert_eq!(strerror(&io::Error::other("End of file")), "End of file");
    }
}
