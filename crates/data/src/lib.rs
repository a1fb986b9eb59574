//! RFC 7047 values and what is said about them: atoms, datums, types, schemas, rows, deltas.
//!
//! Pure. Reading order, from the ground up:
//!
//! 1. [`error`]: the wire error (tag, details, syntax).
//! 2. [`uuid`], [`atom`]: the five atomic types (RFC 7047 §5.1).
//! 3. [`sorted`], [`datum`]: sets and maps as sorted runs whose edits cost O(log n).
//! 4. [`types`], [`schema`], [`parser`]: base types, constraints, columns, tables (RFC 7047 §3.2).
//!    [`keys`]: which columns are to have a key.
//! 5. [`row`], [`store`]: rows by column number, copy-on-write tables, snapshots.
//! 6. [`delta`]: a change, computed once; merged, inverted and applied by everybody else.
//! 7. [`condition`]: clauses over a row (RFC 7047 §5.1 `<condition>`).
//!
//! **Invariant:** a [`delta::Delta`] says everything about a change; `store.apply(&delta)` followed
//! by `store.apply(&delta.inverse())` leaves the store as it was.

pub mod atom;
pub mod condition;
pub mod datum;
pub mod delta;
pub mod english;
pub mod error;
pub mod keys;
pub mod parser;
pub mod row;
pub mod schema;
pub mod sorted;
pub mod store;
pub mod symbols;
pub mod types;
pub mod uuid;

pub use atom::{Atom, AtomRef, AtomType, Str};
pub use datum::{Datum, DatumRef};
pub use delta::{Ages, ColumnDelta, Committed, Delta, IdKind, Ids, RowDelta, TableDelta};
pub use error::Error;
pub use keys::{DeclaredKeys, KeyOrder, KeyWish};
pub use row::{ColumnEdit, Edit, Row, RowEdit, RowImage};
pub use schema::{ColumnId, ColumnSchema, Schema, TableId, TableSchema};
pub use store::{Snapshot, Store};
pub use symbols::{Names, SymbolTable};
pub use types::{BaseType, ColumnType};
pub use uuid::{Uuid, UuidSource};
