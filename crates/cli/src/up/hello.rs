//! What `weir up` shows.

use std::path::{Path, PathBuf};

/// A transaction that may be pasted again and again: each time another port appears.
const TRANSACTION: &str = concat!(
    r#"["Network",{"op":"insert","table":"Port","uuid-name":"p","row":{"name":"guest"}},"#,
    r#"{"op":"mutate","table":"Switch","where":[["name","==","lab"]],"#,
    r#""mutations":[["ports","insert",["named-uuid","p"]]]}]"#,
);

/// Asks for the hosts and their addresses.
const QUERY: &str =
    r#"["Network",{"op":"select","table":"Host","where":[],"columns":["name","addresses"]}]"#;

/// What there is to tell.
pub(super) struct Hello {
    /// How to call this program from another terminal.
    pub(super) program: String,
    /// The folder where everything is kept.
    pub(super) folder: PathBuf,
    /// The unix socket on which the server listens.
    pub(super) socket: PathBuf,
    /// The TCP port on 127.0.0.1 on which the server listens, if there is one.
    pub(super) port: Option<u16>,
    /// Why the TCP port is this one.
    pub(super) remark: Option<String>,
    /// Whether the database is new.
    pub(super) created: bool,
}

impl Hello {
    /// The greeting of a server that has just started.
    pub(super) fn text(&self) -> String {
        let folder = self.folder.display();
        let state = if self.created { "new" } else { "as you left it" };
        let socket = format!("unix:{}", self.socket.display());
        let remotes = match self.port {
            Some(port) => format!("{socket} and tcp:127.0.0.1:{port}"),
            None => socket,
        };
        let remark = self.remark.as_ref().map(|remark| format!("{remark}\n")).unwrap_or_default();
        let [watch, transact, query] = self.lines();
        format!(
            "{remark}Weir is up: database Network ({state}) in {folder}\n\
             on {remotes}\n\
             \n\
             Watch it live; paste this into another terminal:\n\
             \n    {watch}\n\n\
             Plug a port into a switch, in one transaction, and see the change there:\n\
             \n    {transact}\n\n\
             Ask for the hosts:\n\
             \n    {query}\n\n\
             Ctrl-C ends it. Remove {folder} to start afresh.\n"
        )
    }

    /// What is said where a server runs in this folder already.
    pub(super) fn already_running(&self) -> String {
        let [watch, _, _] = self.lines();
        let folder = self.folder.display();
        format!("Weir is up already in {folder}. Try:\n\n    {watch}\n\n")
    }

    /// The three lines to try.
    fn lines(&self) -> [String; 3] {
        let program = shell_word(&self.program);
        let socket = shell_word(&format!("unix:{}", self.socket.display()));
        let other = match self.port {
            Some(port) => format!("tcp:127.0.0.1:{port}"),
            None => socket.clone(),
        };
        [
            format!("{program} watch {socket}"),
            format!("{program} transact {socket} {}", shell_word(TRANSACTION)),
            format!("{program} transact {other} {}", shell_word(QUERY)),
        ]
    }
}

/// How another shell finds this program: by name if it was found by name, else by its path.
pub(super) fn program_name() -> String {
    let typed = std::env::args().next().unwrap_or_default();
    if !typed.is_empty() && !typed.contains('/') {
        return typed;
    }
    let path = std::env::current_exe().ok();
    path.as_deref().map(Path::to_string_lossy).map_or(typed, std::borrow::Cow::into_owned)
}

/// A word as a POSIX shell reads it back.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            program: "weir".to_owned(),
            folder: "/home/o'hara/weir-demo".into(),
            socket: "/home/o'hara/weir-demo/weir.sock".into(),
            port: Some(6641),
            remark: Some("Port 6640 is taken, using 6641 instead.".to_owned()),
            created: true,
        }
    }

    #[test]
    fn there_are_three_lines_to_try() {
        let text = hello().text();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("    weir ")).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], r"    weir watch 'unix:/home/o'\''hara/weir-demo/weir.sock'");
        assert!(lines[2].contains(" tcp:127.0.0.1:6641 "), "{text}");
        assert!(text.starts_with("Port 6640 is taken"), "{text}");
    }

    #[test]
    fn shells_read_words_back() {
        for word in ["plain", "with space", "it's", r#"["a",{"b":1}]"#, ""] {
            let script = format!("printf %s {}", shell_word(word));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
    }

    #[test]
    fn what_is_pasted_is_json() {
        for text in [TRANSACTION, QUERY] {
            assert!(weir_json::Value::parse(text.as_bytes()).is_ok(), "{text}");
        }
    }
}
