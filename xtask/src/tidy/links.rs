//! Links in Markdown files that point into the tree lead somewhere.

use super::Finding;

/// `exists` answers for a path below the root.
pub(super) fn check(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for target in targets(line) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !exists(&resolve(path, file)) {
                let remedy = format!("`{target}` is not there: mend the link");
                findings.push(Finding::breach(format!("{path}:{number}"), "links", remedy));
            }
        }
    }
    findings
}

/// What stands in the round brackets of `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, open)| {
        let rest = &line[at + open.len()..];
        rest.split_once(')').map(|(target, _)| target)
    })
}

/// `target` as seen from the folder of `path`.
fn resolve(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_into_the_tree_leads_somewhere() {
        let there = |path: &str| path == "docs/life.md" || path == "README.md";
        let count = |path: &str, text: &str| check(path, text, there).len();
        assert_eq!(count("README.md", "see [life](docs/life.md#start) and [top](#top)"), 0);
        assert_eq!(count("docs/map.md", "[life](life.md), [home](../README.md)"), 0);
        assert_eq!(count("docs/map.md", "[life](docs/life.md)"), 1);
        assert_eq!(count("README.md", "[web](https://example.com/a)"), 0);
    }
}
