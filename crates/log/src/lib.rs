//! The OVSDB log file: records, standalone transactions, compaction rules.
