//! RFC 7047 values: atoms, datums, types, schemas, deltas, wire errors.
