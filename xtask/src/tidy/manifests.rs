//! Who may import whom: the layers of the workspace, from its manifests.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use toml::Table;

use super::Finding;

const RULE: &str = "layers";

/// Crates whose nouns every layer above them speaks: JSON text and RFC 7047 values.
const VOCABULARY: &[&str] = &["json", "data"];

/// What a crate may import of the workspace, [`VOCABULARY`] aside where marked.
struct Layer {
    name: &'static str,
    may: &'static [&'static str],
    /// Whether the crate stands above the vocabulary and may import all of it.
    above_vocabulary: bool,
}

const fn layer(name: &'static str, may: &'static [&'static str]) -> Layer {
    Layer { name, may, above_vocabulary: true }
}

const fn base(name: &'static str, may: &'static [&'static str]) -> Layer {
    Layer { name, may, above_vocabulary: false }
}

/// The one list of layers. A new crate gets its line here and in
/// `ARCHITECTURE.md` in the same change.
const LAYERS: &[Layer] = &[
    base("json", &[]),
    base("data", &["json"]),
    base("wire", &["json"]),
    layer("log", &[]),
    layer("table", &[]),
    layer("history", &[]),
    layer("engine", &[]),
    layer("monitor", &[]),
    layer("upstream", &["wire"]),
    layer("cluster", &["log", "wire"]),
    layer("server", &["engine", "monitor", "history", "log", "wire", "upstream", "cluster"]),
    base("net", &["wire"]),
    // The effects that host executes name types of history, log and wire.
    layer("host", &["server", "net", "history", "log", "wire"]),
    base("bench", &["wire", "net", "json"]),
    layer("cli", &["host", "log", "server", "net", "wire", "engine", "table", "upstream"]),
    layer("testkit", &["wire", "log", "engine", "monitor", "server", "net", "upstream"]),
    layer("sim", &["log", "history", "engine", "cluster", "server", "testkit", "upstream"]),
    base("xtask", &[]),
];

/// Crates that only tests may depend on, and each other: what people install has none in it.
const TEST_ONLY: &[&str] = &["testkit", "bench", "sim"];

/// Crates that may use `anyhow`: those that end in a program.
const MAY_ANYHOW: &[&str] = &["cli", "xtask", "bench"];

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut folders = vec!["xtask".to_owned()];
    for entry in std::fs::read_dir(root.join("crates")).context("crates/")? {
        let entry = entry?;
        if entry.path().join("Cargo.toml").is_file() {
            folders.push(format!("crates/{}", entry.file_name().to_string_lossy()));
        }
    }
    folders.sort();
    for folder in folders {
        let path = format!("{folder}/Cargo.toml");
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        findings.extend(check_manifest(&path, &text)?);
    }
    Ok(findings)
}

/// Checks one manifest; `path` is `FOLDER/Cargo.toml` below the root.
fn check_manifest(path: &str, text: &str) -> Result<Vec<Finding>> {
    let manifest: Table = text.parse().with_context(|| path.to_owned())?;
    let folder = path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or_default();
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == folder) else {
        let remedy = "this crate has no layer: add it to LAYERS in xtask/src/tidy/manifests.rs";
        return Ok(vec![Finding::breach(path, RULE, remedy)]);
    };
    let mut findings = check_package(path, folder, &manifest);
    for dependency in names(&manifest, &["dependencies", "build-dependencies"]) {
        findings.extend(check_dependency(path, layer, &dependency));
    }
    for dependency in names(&manifest, &["dev-dependencies"]) {
        if dependency.strip_prefix("weir-").is_some_and(|name| TEST_ONLY.contains(&name)) {
            continue;
        }
        findings.extend(check_dependency(path, layer, &dependency));
    }
    Ok(findings)
}

fn check_package(path: &str, folder: &str, manifest: &Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    let expected = if folder == "xtask" { "xtask".to_owned() } else { format!("weir-{folder}") };
    let name = manifest.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str());
    if name != Some(expected.as_str()) {
        let remedy = format!("name the package `{expected}`, after its folder");
        findings.push(Finding::breach(path, RULE, remedy));
    }
    let lints = manifest.get("lints").and_then(|l| l.get("workspace")).and_then(|w| w.as_bool());
    if lints != Some(true) {
        let remedy = "add `[lints] workspace = true`: lints are set once, for all crates";
        findings.push(Finding::breach(path, "workspace lints", remedy));
    }
    findings
}

fn check_dependency(path: &str, layer: &Layer, dependency: &str) -> Option<Finding> {
    if dependency == "anyhow" && !MAY_ANYHOW.contains(&layer.name) {
        let remedy = "`anyhow` is for programs: give this crate a small error enum";
        return Some(Finding::breach(path, "errors", remedy));
    }
    let target = dependency.strip_prefix("weir-")?;
    if TEST_ONLY.contains(&target) && !TEST_ONLY.contains(&layer.name) {
        let remedy = format!("weir-{target} is for tests: move it to [dev-dependencies]");
        return Some(Finding::breach(path, RULE, remedy));
    }
    let vocabulary = layer.above_vocabulary && VOCABULARY.contains(&target);
    if vocabulary || layer.may.contains(&target) {
        return None;
    }
    let remedy = format!(
        "{} may not import {target}: pass the value in from above, or move the code to the layer \
         that may (LAYERS in xtask/src/tidy/manifests.rs)",
        layer.name
    );
    Some(Finding::breach(path, RULE, remedy))
}

/// Package names of the given sections, those under `[target.*]` included.
fn names(manifest: &Table, sections: &[&str]) -> BTreeSet<String> {
    let mut tables: Vec<&Table> = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(|t| t.as_table()) {
        tables.extend(targets.values().filter_map(|t| t.as_table()));
    }
    let mut found = BTreeSet::new();
    for table in tables {
        for section in sections {
            let Some(list) = table.get(*section).and_then(|s| s.as_table()) else { continue };
            for (key, value) in list {
                let renamed = value.get("package").and_then(|p| p.as_str());
                found.insert(renamed.unwrap_or(key).to_owned());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedies(folder: &str, sections: &str) -> Vec<String> {
        let name = if folder == "xtask" { "xtask".into() } else { format!("weir-{folder}") };
        let text = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{sections}\n");
        check_manifest(&format!("crates/{folder}/Cargo.toml"), &text)
            .expect("valid TOML")
            .into_iter()
            .map(|f| f.remedy)
            .collect()
    }

    #[test]
    fn a_layer_imports_what_is_below_it() {
        assert!(remedies("log", "[dependencies]\nweir-json.workspace = true").is_empty());
        assert!(remedies("server", "[dependencies]\nweir-engine.workspace = true").is_empty());
    }

    #[test]
    fn engine_does_not_know_monitors_or_files() {
        for forbidden in ["monitor", "log", "wire", "server", "host"] {
            let found = remedies("engine", &format!("[dependencies]\nweir-{forbidden} = \"1\""));
            assert_eq!(found.len(), 1, "{forbidden}: {found:?}");
        }
    }

    #[test]
    fn a_forbidden_import_is_found_under_a_target_and_under_another_name() {
        let target = "[target.'cfg(unix)'.dependencies]\nweir-net = \"1\"";
        assert_eq!(remedies("server", target).len(), 1);
        let renamed = "[dependencies]\nsockets = { package = \"weir-net\", path = \"../net\" }";
        assert_eq!(remedies("server", renamed).len(), 1);
    }

    #[test]
    fn testkit_and_the_load_tests_are_for_tests() {
        for name in TEST_ONLY {
            let (dev, normal) = ("[dev-dependencies]", "[dependencies]");
            assert!(remedies("cli", &format!("{dev}\nweir-{name} = \"1\"")).is_empty());
            assert_eq!(remedies("cli", &format!("{normal}\nweir-{name} = \"1\"")).len(), 1);
        }
    }

    #[test]
    fn tests_keep_the_layers_too() {
        assert_eq!(remedies("data", "[dev-dependencies]\nweir-host = \"1\"").len(), 1);
    }

    #[test]
    fn anyhow_is_for_programs() {
        assert!(remedies("cli", "[dependencies]\nanyhow = \"1\"").is_empty());
        assert_eq!(remedies("engine", "[dependencies]\nanyhow = \"1\"").len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_is_refused() {
        assert_eq!(remedies("surprise", "").len(), 1);
    }

    #[test]
    fn the_lints_of_the_workspace_apply() {
        let found = check_manifest("crates/json/Cargo.toml", "[package]\nname = \"weir-json\"");
        assert_eq!(found.expect("valid TOML").len(), 1);
    }
}
