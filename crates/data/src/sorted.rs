//! A sorted run of elements with O(log n) edits: one shared piece while small, a tree of shared
//! chunks when large.
//!
//! ```text
//! Flat([elements])         up to FLAT_MAX elements, copied at every edit
//! Tree(nodes of chunks)    see sorted/tree.rs
//! ```
//!
//! **Invariant:** keys ascend strictly.

mod tree;

use std::cmp::Ordering;
use std::sync::Arc;

use triomphe::ThinArc;

use crate::atom::{Atom, AtomRef};
use tree::{Leaf, Node, Tree};

pub use tree::CHUNK_MAX;

/// Largest run kept in one piece.
pub const FLAT_MAX: usize = 16;

/// What can be kept sorted: something with a key.
pub trait Element: Clone {
    /// What the element is sorted by.
    fn key(&self) -> AtomRef<'_>;
}

impl Element for Atom {
    fn key(&self) -> AtomRef<'_> {
        self.as_ref()
    }
}

/// A map's key and value.
pub type Pair = (Atom, Atom);

impl Element for Pair {
    fn key(&self) -> AtomRef<'_> {
        self.0.as_ref()
    }
}

/// Elements in ascending order of keys, each key once; cloning shares them.
#[derive(Clone, Debug)]
pub struct Sorted<E>(Shape<E>);

type Flat<E> = ThinArc<(), E>;

#[derive(Clone, Debug)]
enum Shape<E> {
    Empty,
    Flat(Flat<E>),
    Tree(Arc<Tree<E>>),
}

fn search<E: Element>(run: &[E], key: AtomRef<'_>) -> Result<usize, usize> {
    // What kind the key is need not be found out again at every step.
    let AtomRef::String(text) = key else {
        return run.binary_search_by(|element| element.key().cmp(&key));
    };
    let text = text.as_str();
    run.binary_search_by(|element| match element.key() {
        AtomRef::String(other) => other.as_str().cmp(text),
        other => other.cmp(&key),
    })
}

impl<E> Default for Sorted<E> {
    fn default() -> Self {
        Self(Shape::Empty)
    }
}

impl<E: Element> Sorted<E> {
    /// An empty run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes elements that already ascend strictly by key.
    pub fn from_sorted(elements: Vec<E>) -> Self {
        debug_assert!(elements.windows(2).all(|w| w[0].key() < w[1].key()));
        match elements.len() {
            0 => Self(Shape::Empty),
            1..=FLAT_MAX => {
                Self(Shape::Flat(ThinArc::from_header_and_iter((), elements.into_iter())))
            }
            _ => Self(Shape::Tree(Arc::new(Tree::new(elements)))),
        }
    }

    /// Sorts the elements; `Err` if two of them have the same key.
    pub fn from_unsorted(mut elements: Vec<E>) -> Result<Self, Duplicate> {
        let ascending = |w: &[E]| w[0].key() < w[1].key();
        if !elements.windows(2).all(ascending) {
            elements.sort_by(|a, b| a.key().cmp(&b.key()));
            if !elements.windows(2).all(ascending) {
                return Err(Duplicate);
            }
        }
        Ok(Self::from_sorted(elements))
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Shape::Empty => 0,
            Shape::Flat(run) => run.slice.len(),
            Shape::Tree(tree) => tree.len,
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether both are one and the same run.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Shape::Empty, Shape::Empty) => true,
            (Shape::Flat(a), Shape::Flat(b)) => std::ptr::eq(a.slice.as_ptr(), b.slice.as_ptr()),
            (Shape::Tree(a), Shape::Tree(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The element with this key.
    pub fn get(&self, key: AtomRef<'_>) -> Option<&E> {
        let run: &[E] = match &self.0 {
            Shape::Empty => return None,
            Shape::Flat(run) => &run.slice,
            Shape::Tree(tree) => tree.elements(tree.leaf_for(key)),
        };
        search(run, key).ok().map(|at| &run[at])
    }

    /// Whether there is an element with this key.
    pub fn contains(&self, key: AtomRef<'_>) -> bool {
        self.get(key).is_some()
    }

    /// Adds an element; returns the one of equal key that it replaces.
    pub fn insert(&mut self, element: E) -> Option<E> {
        self.put(element, true).err()
    }

    /// Adds an element unless there is one of equal key, in which case nothing is copied; whether
    /// there was none.
    pub fn add(&mut self, element: E) -> bool {
        self.put(element, false).is_ok()
    }

    /// Adds an element; `Err` if one of equal key was there: that one if it is replaced, else the
    /// new one.
    fn put(&mut self, element: E, replace: bool) -> Result<(), E> {
        match &mut self.0 {
            Shape::Empty => {
                *self = Self::from_sorted(vec![element]);
                Ok(())
            }
            Shape::Flat(run) => match search(&run.slice, element.key()) {
                Ok(_) if !replace => Err(element),
                Ok(at) => {
                    let mut elements = run.slice.to_vec();
                    let replaced = std::mem::replace(&mut elements[at], element);
                    *self = Self::from_sorted(elements);
                    Err(replaced)
                }
                Err(at) => {
                    let mut elements = Vec::with_capacity(run.slice.len() + 1);
                    elements.extend_from_slice(&run.slice[..at]);
                    elements.push(element);
                    elements.extend_from_slice(&run.slice[at..]);
                    *self = Self::from_sorted(elements);
                    Ok(())
                }
            },
            Shape::Tree(tree) => {
                let (index, found) = tree.search(element.key());
                match found {
                    Ok(_) if !replace => Err(element),
                    Ok(at) => Err(Arc::make_mut(tree).replace(index, at, element)),
                    Err(at) => {
                        Arc::make_mut(tree).insert(index, at, element);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Removes and returns the element with this key; copies nothing if there is none.
    pub fn remove(&mut self, key: AtomRef<'_>) -> Option<E> {
        match &mut self.0 {
            Shape::Empty => None,
            Shape::Flat(run) => {
                let at = search(&run.slice, key).ok()?;
                let mut elements = run.slice.to_vec();
                let removed = elements.remove(at);
                *self = Self::from_sorted(elements);
                Some(removed)
            }
            Shape::Tree(tree) => {
                let (index, found) = tree.search(key);
                let at = found.ok()?;
                let tree = Arc::make_mut(tree);
                let removed = tree.remove(index, at);
                if tree.len <= FLAT_MAX / 2 {
                    *self = Self::from_sorted(self.iter().cloned().collect());
                }
                Some(removed)
            }
        }
    }

    /// The elements in ascending order of keys.
    #[inline]
    pub fn iter(&self) -> Iter<'_, E> {
        let run: &[E] = match &self.0 {
            Shape::Empty => &[],
            Shape::Flat(run) => &run.slice,
            Shape::Tree(tree) => {
                let nodes = tree.nodes.iter();
                return Iter { nodes, leaves: [].iter(), run: [].iter(), left: tree.len };
            }
        };
        Iter { nodes: [].iter(), leaves: [].iter(), run: run.iter(), left: run.len() }
    }

    /// The element with the smallest key.
    pub fn first(&self) -> Option<&E> {
        self.iter().next()
    }
}

/// The error of elements that are to be sorted: two had the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate;

/// Iterator over a [`Sorted`] run.
#[derive(Debug)]
pub struct Iter<'a, E> {
    nodes: std::slice::Iter<'a, Arc<Node<E>>>,
    leaves: std::slice::Iter<'a, Leaf<E>>,
    run: std::slice::Iter<'a, E>,
    left: usize,
}

impl<E> Clone for Iter<'_, E> {
    fn clone(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            leaves: self.leaves.clone(),
            run: self.run.clone(),
            left: self.left,
        }
    }
}

impl<'a, E> Iterator for Iter<'a, E> {
    type Item = &'a E;

    fn next(&mut self) -> Option<&'a E> {
        loop {
            if let Some(element) = self.run.next() {
                self.left -= 1;
                return Some(element);
            }
            match self.leaves.next() {
                Some(leaf) => self.run = leaf.elements.iter(),
                None => self.leaves = self.nodes.next()?.leaves.iter(),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<E> ExactSizeIterator for Iter<'_, E> {}

impl<E: Element + PartialEq> PartialEq for Sorted<E> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && (self.is_shared_with(other) || self.iter().eq(other.iter()))
    }
}

impl<E: Element + Eq> Eq for Sorted<E> {}

impl<E: Element + Ord> PartialOrd for Sorted<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E: Element + Ord> Ord for Sorted<E> {
    /// Shorter first, then element by element, as the reference compares datums.
    fn cmp(&self, other: &Self) -> Ordering {
        if self.is_shared_with(other) {
            return Ordering::Equal;
        }
        self.len().cmp(&other.len()).then_with(|| self.iter().cmp(other.iter()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::uuid::UuidSource;

    /// How numbers are spelt as keys, in their order.
    type Spelling = fn(i64) -> Atom;

    const SPELLINGS: [Spelling; 4] = [
        Atom::Integer,
        |n| Atom::string(&format!("{n:06}")),
        // Longer than what the tree looks at first.
        |n| Atom::string(&format!("all begin with this {n:06}")),
        |n| {
            Atom::string(&format!(
                "{:06} ends with what the tree does not see {}",
                n / 50,
                n % 50 + 10
            ))
        },
    ];

    fn assert_same(run: &Sorted<Pair>, twin: &BTreeMap<i64, i64>, key: Spelling) {
        assert_eq!(run.len(), twin.len());
        let pairs = twin.iter().map(|(k, v)| (key(*k), Atom::Integer(*v)));
        assert!(run.iter().cloned().eq(pairs));
    }

    /// The dumb twin: random edits on a run and on a BTreeMap, over sizes that cross every shape.
    #[test]
    fn behaves_like_a_btree_map() {
        for seed in 1..6 {
            SPELLINGS.into_iter().for_each(|key| compare_with_a_btree_map(seed, key));
        }
    }

    fn compare_with_a_btree_map(seed: u64, key: Spelling) {
        let mut random = UuidSource::new([seed, 0, 0, 0]);
        let mut run = Sorted::new();
        let mut twin = BTreeMap::new();
        let range = 10i64.pow(seed as u32);
        for step in 0..30_000 {
            // Grow for the first half, shrink for the second.
            let grows = random.next_u64() % 10 < if step < 15_000 { 8 } else { 2 };
            let n = (random.next_u64() % range as u64) as i64;
            let atom = key(n);
            if grows && step % 3 == 0 {
                let added = run.add((atom.clone(), Atom::Integer(step)));
                assert_eq!(added, !twin.contains_key(&n));
                twin.entry(n).or_insert(step);
            } else if grows {
                let old = run.insert((atom.clone(), Atom::Integer(step)));
                let old = old.map(|pair: Pair| pair.1);
                assert_eq!(old, twin.insert(n, step).map(Atom::Integer));
            } else {
                let old = run.remove(atom.as_ref()).map(|pair| pair.1);
                assert_eq!(old, twin.remove(&n).map(Atom::Integer));
            }
            assert_eq!(run.contains(atom.as_ref()), twin.contains_key(&n));
        }
        assert_same(&run, &twin, key);
        let numbers: Vec<i64> = twin.keys().copied().collect();
        for n in numbers {
            assert!(run.remove(key(n).as_ref()).is_some());
            twin.remove(&n);
        }
        assert_same(&run, &twin, key);
    }

    #[test]
    fn a_copy_is_not_disturbed_by_later_edits() {
        let elements: Vec<Atom> = (0..100_000).map(Atom::Integer).collect();
        let mut run = Sorted::from_sorted(elements.clone());
        let snapshot = run.clone();
        for i in (0..100_000).step_by(3) {
            run.remove(AtomRef::Integer(i));
            run.insert(Atom::Integer(i + 1_000_000));
        }
        assert!(snapshot.iter().eq(elements.iter()));
        assert_eq!(run.len(), 100_000);
    }

    #[test]
    fn duplicates_are_refused() {
        let twice = vec![Atom::string("b"), Atom::string("a"), Atom::string("b")];
        assert_eq!(Sorted::from_unsorted(twice), Err(Duplicate));
    }
}
