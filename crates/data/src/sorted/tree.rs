//! The tree of a large run: two levels over chunks that are shared until they change.
//!
//! ```text
//! Tree: [Arc<Node>] -> [Leaf: rank of the last key, Arc<Vec>] -> elements
//!                       NODE_MAX leaves a node                    CHUNK_MAX elements a chunk
//! ```
//!
//! A search goes over the ranks, which lie side by side, so that it need not fetch a key from each
//! chunk that it passes by.
//!
//! **Invariants:** no node and no chunk is empty; a leaf's rank is that of its last key. Chunks are
//! copied only when a snapshot still shares them, so an edit's cost does not depend on the length.

use std::sync::Arc;

use super::{Element, search};
use crate::atom::AtomRef;

/// Most elements of one chunk.
pub const CHUNK_MAX: usize = 256;
/// Most leaves in one node.
const NODE_MAX: usize = 256;
/// How full chunks are when built in one go: room for insertions without an immediate split.
const CHUNK_FILL: usize = CHUNK_MAX * 3 / 4;

#[derive(Clone, Debug)]
pub(super) struct Tree<E> {
    pub(super) nodes: Vec<Arc<Node<E>>>,
    pub(super) len: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Node<E> {
    pub(super) leaves: Vec<Leaf<E>>,
}

/// A leaf of the tree: a chunk of elements that ascend.
#[derive(Clone, Debug)]
pub(super) struct Leaf<E> {
    /// The [`rank`] of the last key.
    rank: u128,
    pub(super) elements: Arc<Vec<E>>,
}

/// Where a leaf is in a tree.
#[derive(Clone, Copy)]
pub(super) struct LeafIndex {
    node: usize,
    leaf: usize,
}

/// A number that never descends while keys ascend: equal ranks say nothing.
fn rank(key: AtomRef<'_>) -> u128 {
    match key {
        AtomRef::Uuid(uuid) => uuid.to_u128(),
        AtomRef::String(text) => {
            let text = text.as_str().as_bytes();
            let mut first = [0; 16];
            let len = text.len().min(first.len());
            first[..len].copy_from_slice(&text[..len]);
            u128::from_be_bytes(first)
        }
        AtomRef::Integer(value) => u128::from(value.cast_unsigned() ^ 1 << 63),
        AtomRef::Real(_) | AtomRef::Boolean(_) => 0,
    }
}

impl<E: Element> Leaf<E> {
    fn new(elements: Vec<E>) -> Self {
        let mut leaf = Self { rank: 0, elements: Arc::new(elements) };
        leaf.renew_rank();
        leaf
    }

    fn renew_rank(&mut self) {
        self.rank = self.last_key().map_or(0, rank);
    }

    fn last_key(&self) -> Option<AtomRef<'_>> {
        self.elements.last().map(Element::key)
    }

    /// Whether all its keys are below `key`, whose rank is given.
    fn is_below(&self, key: AtomRef<'_>, rank: u128) -> bool {
        self.rank < rank || self.rank == rank && self.last_key().is_some_and(|last| last < key)
    }
}

impl<E: Element> Node<E> {
    fn is_below(&self, key: AtomRef<'_>, rank: u128) -> bool {
        self.leaves.last().is_some_and(|leaf| leaf.is_below(key, rank))
    }
}

impl<E: Element> Tree<E> {
    /// Takes elements that ascend.
    pub(super) fn new(elements: Vec<E>) -> Self {
        let len = elements.len();
        let mut rest = elements.into_iter();
        let mut nodes = Vec::new();
        while rest.len() > 0 {
            let mut leaves = Vec::new();
            while rest.len() > 0 && leaves.len() < NODE_MAX * 3 / 4 {
                leaves.push(Leaf::new(rest.by_ref().take(CHUNK_FILL).collect()));
            }
            nodes.push(Arc::new(Node { leaves }));
        }
        Self { nodes, len }
    }

    /// The leaf that holds `key` or would take it.
    pub(super) fn leaf_for(&self, key: AtomRef<'_>) -> LeafIndex {
        let rank = rank(key);
        let at = self.nodes.partition_point(|node| node.is_below(key, rank));
        let node = at.min(self.nodes.len() - 1);
        let leaves = &self.nodes[node].leaves;
        let at = leaves.partition_point(|leaf| leaf.is_below(key, rank));
        LeafIndex { node, leaf: at.min(leaves.len() - 1) }
    }

    /// A leaf's elements.
    pub(super) fn elements(&self, index: LeafIndex) -> &Vec<E> {
        &self.nodes[index.node].leaves[index.leaf].elements
    }

    /// The leaf to look in, and where in it the key is or belongs.
    pub(super) fn search(&self, key: AtomRef<'_>) -> (LeafIndex, Result<usize, usize>) {
        let index = self.leaf_for(key);
        (index, search(self.elements(index), key))
    }

    /// Puts an element of equal key into the place of another, which it returns.
    pub(super) fn replace(&mut self, index: LeafIndex, at: usize, element: E) -> E {
        let node = Arc::make_mut(&mut self.nodes[index.node]);
        let elements = Arc::make_mut(&mut node.leaves[index.leaf].elements);
        std::mem::replace(&mut elements[at], element)
    }

    /// Adds an element where it belongs.
    pub(super) fn insert(&mut self, index: LeafIndex, at: usize, element: E) {
        self.len += 1;
        let node = Arc::make_mut(&mut self.nodes[index.node]);
        let leaf = &mut node.leaves[index.leaf];
        let elements = Arc::make_mut(&mut leaf.elements);
        elements.insert(at, element);
        let upper = (elements.len() > CHUNK_MAX).then(|| elements.split_off(CHUNK_MAX / 2));
        leaf.renew_rank();
        let Some(upper) = upper else { return };
        node.leaves.insert(index.leaf + 1, Leaf::new(upper));
        if node.leaves.len() > NODE_MAX {
            let leaves = node.leaves.split_off(NODE_MAX / 2);
            self.nodes.insert(index.node + 1, Arc::new(Node { leaves }));
        }
    }

    /// Takes an element out.
    pub(super) fn remove(&mut self, index: LeafIndex, at: usize) -> E {
        self.len -= 1;
        let node = Arc::make_mut(&mut self.nodes[index.node]);
        let leaf = &mut node.leaves[index.leaf];
        let elements = Arc::make_mut(&mut leaf.elements);
        let removed = elements.remove(at);
        let left = elements.len();
        leaf.renew_rank();
        if left == 0 {
            node.leaves.remove(index.leaf);
        } else if left < CHUNK_MAX / 4 {
            merge(node, index.leaf);
        }
        if node.leaves.is_empty() {
            self.nodes.remove(index.node);
        }
        removed
    }
}

/// Merges a small chunk with its smaller neighbour where both fit into three quarters of a chunk.
fn merge<E: Element>(node: &mut Node<E>, at: usize) {
    let length = |i: usize| node.leaves.get(i).map_or(usize::MAX, |leaf| leaf.elements.len());
    let before = at.checked_sub(1).map_or(usize::MAX, length);
    let left = if before <= length(at + 1) { at.saturating_sub(1) } else { at };
    let fits = |a: usize, b: usize| a.saturating_add(b) <= CHUNK_FILL;
    if left + 1 < node.leaves.len() && fits(length(left), length(left + 1)) {
        let upper = node.leaves.remove(left + 1);
        let leaf = &mut node.leaves[left];
        Arc::make_mut(&mut leaf.elements).extend(Arc::unwrap_or_clone(upper.elements));
        leaf.renew_rank();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atom::Atom;

    #[test]
    fn ranks_never_descend_while_keys_ascend() {
        let strings =
            ["", "a", "a\u{1}", "aaaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaaab", "ab", "\u{7f}", "é"];
        let integers = [i64::MIN, -1, 0, 1, i64::MAX];
        let reals = [f64::NEG_INFINITY, -1.0, 0.0, f64::MAX];
        let uuids = [0, 1, 1 << 64, u128::MAX].map(crate::Uuid::from_u128);
        let kinds: [Vec<Atom>; 4] = [
            strings.iter().map(|text| Atom::string(text)).collect(),
            integers.map(Atom::Integer).to_vec(),
            reals.map(Atom::Real).to_vec(),
            uuids.map(Atom::Uuid).to_vec(),
        ];
        for atoms in kinds {
            for pair in atoms.windows(2) {
                assert!(pair[0] < pair[1], "{pair:?}");
                assert!(rank(pair[0].as_ref()) <= rank(pair[1].as_ref()), "{pair:?}");
            }
        }
    }
}
