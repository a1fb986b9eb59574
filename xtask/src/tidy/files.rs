//! Which files belong to the tree: what git tracks or would offer to add.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Inputs of fuzz targets: bytes, whatever they look like.
const CORPUS: &str = "fuzz/corpus/";

/// Paths below `root`, sorted. Without git (an unpacked archive) every file
/// outside hidden and `target` folders.
pub(super) fn list(root: &Path) -> Result<Vec<String>> {
    let mut paths = match git_files(root) {
        Some(paths) => paths,
        None => {
            let mut found = Vec::new();
            walk(root, "", &mut found)?;
            found
        }
    };
    paths.retain(|path| !path.starts_with(CORPUS) && root.join(path).is_file());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

fn git_files(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, below: &str, found: &mut Vec<String>) -> Result<()> {
    let folder = root.join(below);
    for entry in std::fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            let generated = name == "target" || (name.starts_with('.') && name != ".ci");
            if !generated {
                walk(root, &path, found)?;
            }
        } else {
            found.push(path);
        }
    }
    Ok(())
}
