//! Monitors: groups, conditions, merged changes, composed updates.
