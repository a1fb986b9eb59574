//! Inside a crate arrows point one way: no owner (see [`arrows`](super::arrows)) reaches itself
//! through others, and the object that holds the state keeps it to itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Finding;
use super::arrows::{Arrows, Source};

const RULE: &str = "circles";
const FIELDS: &str = "fields";

/// What one crate may have. The aim is no arrow in a circle and no open field; a crate that is not
/// there yet has the number that it has today, so that it only falls.
struct Limits {
    /// Name of the folder below `crates`.
    name: &'static str,
    /// Arrows from owner to owner that lie on a circle.
    in_circles_max: usize,
    /// The object that holds the state of the crate.
    face: Face,
}

/// A struct whose fields are counted.
struct Face {
    /// Path below `src`.
    path: &'static str,
    name: &'static str,
    fields_max: usize,
    /// Fields that are `pub` in any way.
    open_max: usize,
}

/// The crates that are looked at.
const CRATES: &[Limits] = &[Limits {
    name: "server",
    in_circles_max: 0,
    face: Face { path: "server/mod.rs", name: "Server", fields_max: 16, open_max: 0 },
}];

/// Names of the crates that are looked at.
pub(super) fn crates() -> impl Iterator<Item = &'static str> {
    CRATES.iter().map(|limits| limits.name)
}

/// Checks one crate, whose sources these are.
pub(super) fn check(name: &str, sources: &[Source]) -> Vec<Finding> {
    let Some(limits) = CRATES.iter().find(|limits| limits.name == name) else {
        return Vec::new();
    };
    check_within(limits, sources)
}

fn check_within(limits: &Limits, sources: &[Source]) -> Vec<Finding> {
    let source = |path: &str| format!("crates/{}/src/{path}", limits.name);
    let arrows = Arrows::read(sources);
    let circles = circles(&arrows);
    let involved = steps(&circles).len();
    let mut findings = Vec::new();
    if involved > limits.in_circles_max {
        for circle in &circles {
            let place = source(arrows.place(circle[0], circle[1 % circle.len()]));
            let remedy = format!(
                "{}: turn one of these arrows around, or move what both sides need below them",
                show(&arrows, circle)
            );
            findings.push(Finding::breach(place, RULE, remedy));
        }
    } else if involved > 0 {
        let remedy = format!(
            "{involved} arrows lie on circles, at most {}, aim at none: \
             `cargo xtask tidy --arrows {}`",
            limits.in_circles_max, limits.name
        );
        findings.push(Finding::note(source(""), RULE, remedy));
    }
    let place = source(limits.face.path);
    let code = sources.iter().find(|source| source.path == limits.face.path);
    findings.extend(check_face(&limits.face, place, code.map_or("", |source| &source.code)));
    findings
}

fn check_face(face: &Face, place: String, code: &str) -> Option<Finding> {
    let Some((fields, open)) = fields(code, face.name) else {
        let remedy = format!("no struct `{}` here: mend CRATES in xtask/src/tidy", face.name);
        return Some(Finding::breach(place, FIELDS, remedy));
    };
    if fields <= face.fields_max && open <= face.open_max {
        return None;
    }
    let remedy = format!(
        "`{}` has {fields} fields, {open} of them open, at most {} and {}: give what belongs \
         together an owner with methods",
        face.name, face.fields_max, face.open_max
    );
    Some(Finding::breach(place, FIELDS, remedy))
}

/// How many fields a struct has and how many of them are `pub` in any way, by the layout that
/// rustfmt gives: one field a line, four columns deep.
fn fields(code: &str, name: &str) -> Option<(usize, usize)> {
    let begins = format!("struct {name} {{");
    let mut lines = code.lines().skip_while(|line| !line.ends_with(&begins));
    lines.next()?;
    let fields: Vec<&str> = lines
        .take_while(|line| *line != "}")
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| line.starts_with(|c: char| c.is_alphabetic() || c == '_'))
        .collect();
    Some((fields.len(), fields.iter().filter(|line| line.starts_with("pub")).count()))
}

/// For each arrow that lies on a circle the shortest one through it, each circle once, the short
/// ones first. It begins with the first of its owners by name.
fn circles(arrows: &Arrows) -> Vec<Vec<&str>> {
    let mut found = BTreeSet::new();
    for from in arrows.0.keys() {
        for to in arrows.targets(from) {
            let Some(mut circle) = shortest_path(arrows, to, from) else { continue };
            let first = circle.iter().enumerate().min_by_key(|(_, owner)| **owner);
            let first = first.map_or(0, |(at, _)| at);
            circle.rotate_left(first);
            found.insert((circle.len(), circle));
        }
    }
    found.into_iter().map(|(_, circle)| circle).collect()
}

/// Owners from `from` to `to`, both included, along as few arrows as possible.
fn shortest_path<'a>(arrows: &'a Arrows, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut paths = vec![vec![from]];
    let mut seen = BTreeSet::from([from]);
    while !paths.is_empty() {
        if let Some(path) = paths.iter().find(|path| path.last() == Some(&to)) {
            return Some(path.clone());
        }
        let longer = paths.iter().flat_map(|path| {
            let last = path.last().copied().unwrap_or_default();
            arrows.targets(last).map(|next| [path.as_slice(), &[next]].concat())
        });
        let longer = longer.filter(|path| path.last().is_some_and(|last| seen.insert(last)));
        paths = longer.collect();
    }
    None
}

/// The arrows that the circles are made of.
fn steps<'a>(circles: &[Vec<&'a str>]) -> BTreeSet<(&'a str, &'a str)> {
    let of = |circle: &Vec<&'a str>| {
        let next = circle.iter().copied().cycle().skip(1);
        circle.iter().copied().zip(next).collect::<Vec<_>>()
    };
    circles.iter().flat_map(of).collect()
}

/// `a → b (a.rs:3) → a (b.rs:7)`: behind each step the first place that takes it.
fn show(arrows: &Arrows, circle: &[&str]) -> String {
    let mut text = circle[0].to_owned();
    for (at, from) in circle.iter().enumerate() {
        let to = circle[(at + 1) % circle.len()];
        let _ = write!(text, " → {to} ({})", arrows.place(from, to));
    }
    text
}

/// All arrows of a crate with their counts, and all circles, for a person.
pub(super) fn describe(sources: &[Source]) -> String {
    let arrows = Arrows::read(sources);
    let circles = circles(&arrows);
    let mut text = String::new();
    for (from, targets) in &arrows.0 {
        for (to, places) in targets {
            let _ = writeln!(text, "{from} → {to}  {}  {}", places.len(), places[0]);
        }
    }
    for circle in &circles {
        let _ = writeln!(text, "circle: {}", show(&arrows, circle));
    }
    let count: usize = arrows.0.values().map(BTreeMap::len).sum();
    let owners: BTreeSet<&str> = circles.iter().flatten().copied().collect();
    let _ = writeln!(
        text,
        "{} owners, {count} arrows between them; {} arrows lie on circles, between {}",
        arrows.0.len(),
        steps(&circles).len(),
        if owners.is_empty() {
            "nobody".into()
        } else {
            owners.into_iter().collect::<Vec<_>>().join(" ")
        }
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::Severity;

    fn limits(in_circles_max: usize, fields_max: usize, open_max: usize) -> Limits {
        let face = Face { path: "server.rs", name: "Server", fields_max, open_max };
        Limits { name: "made-up", in_circles_max, face }
    }

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        let face =
            ("server.rs", "pub struct Server {\n    id: u8,\n    pub(crate) of: [u8; 2],\n}\n");
        let all = files.iter().chain([&face]);
        all.map(|(path, text)| Source::new(path, text)).collect()
    }

    /// Three owners in a row, and an arrow back that goes past the middle one.
    fn a_circle() -> Vec<Source> {
        sources(&[
            ("a.rs", "use crate::b::B;\n"),
            ("b/mod.rs", "\nuse crate::c::C;\n"),
            ("c.rs", "fn f() { super::a::g() }\nuse crate::d::D;"),
            ("d.rs", ""),
        ])
    }

    #[test]
    fn arrows_that_point_one_way_pass() {
        let all = [("a.rs", "use crate::{b, c};"), ("b.rs", "use crate::c;"), ("c.rs", "")];
        assert_eq!(check_within(&limits(0, 2, 1), &sources(&all)), []);
    }

    #[test]
    fn a_circle_is_named_step_by_step() {
        let found = check_within(&limits(0, 2, 1), &a_circle());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].place, "crates/made-up/src/a.rs:1");
        let steps = "a → b (a.rs:1) → c (b/mod.rs:2) → a (c.rs:1): ";
        assert!(found[0].remedy.starts_with(steps), "{}", found[0].remedy);
    }

    #[test]
    fn a_crate_that_is_not_there_yet_may_only_get_better() {
        let severity = |in_circles_max| {
            let found = check_within(&limits(in_circles_max, 2, 1), &a_circle());
            (found.len(), found[0].severity)
        };
        assert_eq!(severity(3), (1, Severity::Note));
        assert_eq!(severity(2), (1, Severity::Breach));
    }

    #[test]
    fn every_arrow_on_a_circle_is_in_one_that_is_named() {
        let all = sources(&[
            ("a.rs", "use crate::{b, c};"),
            ("b.rs", "use crate::a;"),
            ("c.rs", "use crate::b;"),
        ]);
        let arrows = Arrows::read(&all);
        assert_eq!(circles(&arrows), [vec!["a", "b"], vec!["a", "c", "b"]]);
        let text = describe(&all);
        assert!(text.contains("a → c  1  a.rs:1\n"), "{text}");
        assert!(text.ends_with("4 arrows lie on circles, between a b c\n"), "{text}");
    }

    #[test]
    fn fields_are_counted_and_those_that_are_open() {
        let count = |fields_max, open_max| {
            check_within(&limits(0, fields_max, open_max), &sources(&[])).len()
        };
        assert_eq!(count(2, 1), 0);
        assert_eq!(count(1, 1), 1);
        assert_eq!(count(2, 0), 1);
        let elsewhere = [Source::new("server.rs", "struct Other {\n    id: u8,\n}\n")];
        assert_eq!(check_within(&limits(0, 2, 1), &elsewhere).len(), 1);
    }
}
