//! The bytes of a connection in both directions: those of the socket itself, or of an encryption over it.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// A connection that one thread reads from while another one writes to it.
pub trait Transport: Send + Sync {
    /// Reads some bytes; 0: the client has closed the connection.
    ///
    /// # Errors
    /// With a kind of `WouldBlock` after the time limit of the socket.
    fn read(&self, into: &mut [u8]) -> io::Result<usize>;

    /// Takes some bytes of the buffers to send. Returns their number.
    ///
    /// # Errors
    /// With a kind of `WouldBlock` after the time limit of the socket.
    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Sends bytes that were taken and are not sent yet.
    ///
    /// # Errors
    /// With a kind of `WouldBlock` after the time limit of the socket.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for TcpStream {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut stream = self;
        Read::read(&mut stream, into)
    }

    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut stream = self;
        Write::write_vectored(&mut stream, buffers)
    }
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        (**self).read(into)
    }

    fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (**self).write_vectored(buffers)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}
