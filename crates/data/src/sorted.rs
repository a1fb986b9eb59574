//! A sorted run of elements with O(log n) edits: one shared piece while small, a tree of shared
//! chunks when large.
//!
//! ```text
//! Flat([elements])                            up to FLAT_MAX elements, copied at every edit
//! Tree: [Arc<Node>] -> [Arc<Vec>] -> elements    CHUNK_MAX elements a chunk, NODE_MAX chunks a node
//! ```
//!
//! **Invariants:** keys ascend strictly; a tree has no empty node and no empty chunk. Chunks are
//! copied only when a snapshot still shares them, so an edit's cost does not depend on the length.

use std::cmp::Ordering;
use std::sync::Arc;

use triomphe::ThinArc;

use crate::atom::{Atom, AtomRef};

/// Largest run kept in one piece.
pub const FLAT_MAX: usize = 16;
/// Largest chunk.
pub const CHUNK_MAX: usize = 256;
/// Most chunks in one node.
const NODE_MAX: usize = 256;
/// How full chunks are when built in one go: room for insertions without an immediate split.
const CHUNK_FILL: usize = CHUNK_MAX * 3 / 4;

/// What can be kept sorted: something with a key.
pub trait Element: Clone {
    /// What it is sorted by.
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

/// The sorted run; cloning shares it.
#[derive(Clone, Debug)]
pub struct Sorted<E>(Shape<E>);

type Flat<E> = ThinArc<(), E>;

#[derive(Clone, Debug)]
enum Shape<E> {
    Empty,
    Flat(Flat<E>),
    Tree(Arc<Tree<E>>),
}

#[derive(Clone, Debug)]
struct Tree<E> {
    nodes: Vec<Arc<Node<E>>>,
    len: usize,
}

type Chunk<E> = Arc<Vec<E>>;

#[derive(Clone, Debug)]
struct Node<E> {
    chunks: Vec<Chunk<E>>,
}

impl<E: Element> Node<E> {
    fn last_key(&self) -> Option<AtomRef<'_>> {
        self.chunks.last().and_then(|chunk| chunk.last()).map(Element::key)
    }

    /// The chunk that holds `key` or would take it.
    fn chunk_for(&self, key: AtomRef<'_>) -> usize {
        let at = self.chunks.partition_point(|c| c.last().is_some_and(|e| e.key() < key));
        at.min(self.chunks.len().saturating_sub(1))
    }
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

    /// Sorts; `Err` if two elements have the same key.
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

    /// How many elements.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Shape::Empty => 0,
            Shape::Flat(run) => run.slice.len(),
            Shape::Tree(tree) => tree.len,
        }
    }

    /// Whether there are none.
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
            Shape::Tree(tree) => tree.chunk(tree.place(key)),
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
                let (place, found) = tree.search(element.key());
                match found {
                    Ok(_) if !replace => Err(element),
                    Ok(at) => {
                        let chunk = Arc::make_mut(tree).chunk_mut(place);
                        Err(std::mem::replace(&mut chunk[at], element))
                    }
                    Err(at) => {
                        Arc::make_mut(tree).insert(place, at, element);
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
                let (place, found) = tree.search(key);
                let at = found.ok()?;
                let tree = Arc::make_mut(tree);
                let removed = tree.remove(place, at);
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
                return Iter { nodes, chunks: [].iter(), run: [].iter(), left: tree.len };
            }
        };
        Iter { nodes: [].iter(), chunks: [].iter(), run: run.iter(), left: run.len() }
    }

    /// The first element.
    pub fn first(&self) -> Option<&E> {
        self.iter().next()
    }
}

impl<E: Element> Tree<E> {
    fn new(elements: Vec<E>) -> Self {
        let len = elements.len();
        let mut rest = elements.into_iter();
        let mut nodes = Vec::new();
        while rest.len() > 0 {
            let mut chunks = Vec::new();
            while rest.len() > 0 && chunks.len() < NODE_MAX * 3 / 4 {
                chunks.push(Arc::new(rest.by_ref().take(CHUNK_FILL).collect::<Vec<_>>()));
            }
            nodes.push(Arc::new(Node { chunks }));
        }
        Self { nodes, len }
    }

    /// Where `key` is, or would be.
    fn place(&self, key: AtomRef<'_>) -> Place {
        let at = self.nodes.partition_point(|n| n.last_key().is_some_and(|last| last < key));
        let node = at.min(self.nodes.len() - 1);
        Place { node, chunk: self.nodes[node].chunk_for(key) }
    }

    fn chunk(&self, place: Place) -> &Vec<E> {
        &self.nodes[place.node].chunks[place.chunk]
    }

    /// The chunk to look in, and where in it the key is or belongs.
    fn search(&self, key: AtomRef<'_>) -> (Place, Result<usize, usize>) {
        let place = self.place(key);
        (place, search(self.chunk(place), key))
    }

    fn chunk_mut(&mut self, place: Place) -> &mut Vec<E> {
        let node = Arc::make_mut(&mut self.nodes[place.node]);
        Arc::make_mut(&mut node.chunks[place.chunk])
    }

    fn insert(&mut self, place: Place, at: usize, element: E) {
        self.len += 1;
        let node = Arc::make_mut(&mut self.nodes[place.node]);
        let chunk = Arc::make_mut(&mut node.chunks[place.chunk]);
        chunk.insert(at, element);
        if chunk.len() > CHUNK_MAX {
            let upper = chunk.split_off(CHUNK_MAX / 2);
            node.chunks.insert(place.chunk + 1, Arc::new(upper));
            if node.chunks.len() > NODE_MAX {
                let chunks = node.chunks.split_off(NODE_MAX / 2);
                self.nodes.insert(place.node + 1, Arc::new(Node { chunks }));
            }
        }
    }

    fn remove(&mut self, place: Place, at: usize) -> E {
        self.len -= 1;
        let node = Arc::make_mut(&mut self.nodes[place.node]);
        let chunk = Arc::make_mut(&mut node.chunks[place.chunk]);
        let removed = chunk.remove(at);
        if chunk.is_empty() {
            node.chunks.remove(place.chunk);
        } else if chunk.len() < CHUNK_MAX / 4 {
            merge_chunk(node, place.chunk);
        }
        if node.chunks.is_empty() {
            self.nodes.remove(place.node);
        }
        removed
    }
}

/// A chunk of a tree.
#[derive(Clone, Copy)]
struct Place {
    node: usize,
    chunk: usize,
}

/// Two elements had the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate;

/// Merges a small chunk with its smaller neighbour where both fit into three quarters of a chunk.
fn merge_chunk<E: Element>(node: &mut Node<E>, at: usize) {
    let length = |i: usize| node.chunks.get(i).map_or(usize::MAX, |chunk| chunk.len());
    let before = at.checked_sub(1).map_or(usize::MAX, length);
    let left = if before <= length(at + 1) { at.saturating_sub(1) } else { at };
    let fits = |a: usize, b: usize| a.saturating_add(b) <= CHUNK_FILL;
    if left + 1 < node.chunks.len() && fits(length(left), length(left + 1)) {
        let upper = node.chunks.remove(left + 1);
        Arc::make_mut(&mut node.chunks[left]).extend(Arc::unwrap_or_clone(upper));
    }
}

/// Iterator over a [`Sorted`] run.
#[derive(Debug)]
pub struct Iter<'a, E> {
    nodes: std::slice::Iter<'a, Arc<Node<E>>>,
    chunks: std::slice::Iter<'a, Chunk<E>>,
    run: std::slice::Iter<'a, E>,
    left: usize,
}

impl<E> Clone for Iter<'_, E> {
    fn clone(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            chunks: self.chunks.clone(),
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
            match self.chunks.next() {
                Some(chunk) => self.run = chunk.iter(),
                None => self.chunks = self.nodes.next()?.chunks.iter(),
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
        self.len().cmp(&other.len()).then_with(|| self.iter().cmp(other.iter()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::uuid::UuidSource;

    fn assert_same(run: &Sorted<Pair>, twin: &BTreeMap<i64, i64>) {
        assert_eq!(run.len(), twin.len());
        let pairs = twin.iter().map(|(k, v)| (Atom::Integer(*k), Atom::Integer(*v)));
        assert!(run.iter().cloned().eq(pairs));
    }

    /// The dumb twin: random edits on a run and on a BTreeMap, over sizes that cross every shape.
    #[test]
    fn behaves_like_a_btree_map() {
        for seed in 1..6 {
            let mut random = UuidSource::new([seed, 0, 0, 0]);
            let mut run = Sorted::new();
            let mut twin = BTreeMap::new();
            let range = 10i64.pow(seed as u32);
            for step in 0..30_000 {
                // Grow for the first half, shrink for the second.
                let insert = random.next_u64() % 10 < if step < 15_000 { 8 } else { 2 };
                let key = (random.next_u64() % range as u64) as i64;
                if insert {
                    let old = run.insert((Atom::Integer(key), Atom::Integer(step)));
                    let old = old.map(|pair: Pair| pair.1);
                    assert_eq!(old, twin.insert(key, step).map(Atom::Integer));
                } else {
                    let old = run.remove(AtomRef::Integer(key)).map(|pair| pair.1);
                    assert_eq!(old, twin.remove(&key).map(Atom::Integer));
                }
                assert_eq!(run.contains(AtomRef::Integer(key)), twin.contains_key(&key));
            }
            assert_same(&run, &twin);
            let keys: Vec<i64> = twin.keys().copied().collect();
            for key in keys {
                assert!(run.remove(AtomRef::Integer(key)).is_some());
                twin.remove(&key);
            }
            assert_same(&run, &twin);
        }
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
