//! Tests of transactions and commits below the level of operations.

mod difference;
mod follow;
mod golden;
mod keys;
mod load;
mod scale;
mod scenario;
mod twin;
mod world;
