//! ZAP: tables of names and values, micro and fat.
