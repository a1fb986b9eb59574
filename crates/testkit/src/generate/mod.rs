//! Deterministic generators of schemas and transactions.

pub mod faults;
pub mod roles;
pub mod rows;
pub mod schema;
pub mod transaction;
pub mod value;

pub use schema::Schema;
pub use transaction::Generator;
