//! Bulk data: copies and element loops over raw pointers.
