//! JSON as OVSDB speaks it: framer, validator, pull reader, values, writer.
