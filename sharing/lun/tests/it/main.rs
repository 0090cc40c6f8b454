//! Logical units over volumes of real pools.

mod volumes;
